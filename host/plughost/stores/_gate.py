"""A gate before a store's operations: open while the store serves, shut while its schema is replaced."""

from __future__ import annotations

import threading
import time

from plughost.stores._connections import operation as current
from plughost.stores._errors import Busy, MisusedStore


class Gate:
    """Lets operations in while it is open, one of a thread; whoever shuts it waits until those inside have left.

    Entering and leaving an open gate takes no lock.
    """

    def __init__(self, label: str, patience: float) -> None:
        """Make an open gate to a store; whoever shuts it waits no longer than `patience`."""
        self._label = label
        self._patience = patience
        self._inside: dict[int, None] = {}
        self._shut = False
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Begin an operation of this thread outside, which `end` ends; `MisusedStore` inside another."""
        if current.label is not None:
            raise MisusedStore(
                f"An operation of the {self._label} was begun inside one of the {current.label}. Do one after the "
                "other: two at once in a thread can wait for each other for ever."
            )
        current.label = self._label
        current.waited = 0.0

    def enter(self, deadline: float) -> None:
        """Begin an operation inside once the gate is open; `Busy` where it stays shut until the deadline."""
        while True:
            self.begin()
            self._inside[threading.get_ident()] = None
            if not self._shut:  # whoever shuts it from here on sees this operation
                return
            self.end()
            with self._changed:
                if not self._changed.wait_for(lambda: not self._shut, max(0.0, deadline - time.monotonic())):
                    raise Busy(f"The {self._label} is being migrated.")

    def end(self) -> None:
        """End the operation of this thread, and go out if it is in."""
        current.label = None
        self._inside.pop(threading.get_ident(), None)
        if self._shut:
            with self._changed:
                self._changed.notify_all()

    def shut(self) -> None:
        """Let no operation in any more, and wait until those inside have left; `Busy` if one takes too long."""
        self._shut = True
        with self._changed:
            empty = self._changed.wait_for(lambda: not self._inside, self._patience)
        if not empty:
            self.open()
            raise Busy(f"Requests that use the {self._label} took longer than {self._patience:g} s: try again.")

    def open(self) -> None:
        """Let operations in."""
        self._shut = False
        with self._changed:
            self._changed.notify_all()
