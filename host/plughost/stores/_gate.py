"""A gate before a store's operations: open while the store serves, shut while its schema is replaced."""

from __future__ import annotations

import threading
import time

from plughost.stores._errors import Busy


class Gate:
    """Lets operations in while it is open; whoever shuts it waits until those inside have left.

    Entering and leaving an open gate takes no lock.
    """

    def __init__(self, label: str, patience: float) -> None:
        """Make an open gate.

        Args:
            label: What it leads to, for messages.
            patience: Seconds to wait, for operations as well as for whoever shuts it.
        """
        self._label = label
        self._patience = patience
        self._inside: dict[int, None] = {}
        self._shut = False
        self._changed = threading.Condition()

    def enter(self) -> None:
        """Go in with this thread's operation, once the gate is open.

        Raises:
            Busy: It stayed shut for too long.
        """
        me = threading.get_ident()
        give_up = 0.0
        while True:
            self._inside[me] = None
            if not self._shut:  # whoever shuts it sees this operation from here on
                return
            self.leave()
            give_up = give_up or time.monotonic() + self._patience
            with self._changed:
                if not self._changed.wait_for(lambda: not self._shut, max(0.0, give_up - time.monotonic())):
                    message = f"The {self._label} is being migrated."
                    raise Busy(message)

    def leave(self) -> None:
        """Go out with this thread's operation."""
        del self._inside[threading.get_ident()]
        if self._shut:
            with self._changed:
                self._changed.notify_all()

    def shut(self) -> None:
        """Let no operation in any more, and wait until those inside have left.

        Raises:
            Busy: One took too long; the gate is open again.
        """
        self._shut = True
        with self._changed:
            empty = self._changed.wait_for(lambda: not self._inside, self._patience)
        if not empty:
            self.open()
            message = f"Requests that use the {self._label} took longer than {self._patience:g} s: try again."
            raise Busy(message)

    def open(self) -> None:
        """Let operations in."""
        self._shut = False
        with self._changed:
            self._changed.notify_all()
