"""A gate for a store's operations: open while the store serves, closed while its schema is replaced."""

from __future__ import annotations

import threading
import time

from plughost.stores._errors import Busy, MisusedStore
from plughost.stores._pool import current_operation


class Gate:
    """Admits operations while it is open, one per thread; `drain` closes it and waits until they have ended.

    Entering and leaving an open gate takes no lock.
    """

    def __init__(self, label: str, patience: float) -> None:
        """Begin open; `drain` waits no longer than `patience` seconds."""
        self._label = label
        self._patience = patience
        self._running: dict[int, None] = {}
        self._is_closed = False
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Begin an operation of this thread without entering; `MisusedStore` inside another operation."""
        if current_operation.label is not None:
            raise MisusedStore(
                f"An operation of the {self._label} was begun inside one of the {current_operation.label}. Do one "
                "after the other: two at once in a thread can wait for each other for ever."
            )
        current_operation.label = self._label
        current_operation.waited = 0.0

    def enter(self, deadline: float) -> None:
        """Begin an operation once the gate is open; `Busy` if it stays closed until the deadline."""
        while True:
            self.begin()
            self._running[threading.get_ident()] = None
            if not self._is_closed:  # a `drain` from here on sees this operation
                return
            self.end()
            with self._changed:
                if not self._changed.wait_for(lambda: not self._is_closed, max(0.0, deadline - time.monotonic())):
                    raise Busy(f"The {self._label} is being migrated.")

    def end(self) -> None:
        """End this thread's operation, whether it entered or not."""
        current_operation.label = None
        self._running.pop(threading.get_ident(), None)
        if self._is_closed:
            with self._changed:
                self._changed.notify_all()

    def drain(self) -> None:
        """Close the gate and wait for running operations; if one takes too long, reopen it and raise `Busy`."""
        self._is_closed = True
        with self._changed:
            empty = self._changed.wait_for(lambda: not self._running, self._patience)
        if not empty:
            self.open()
            raise Busy(f"Requests that use the {self._label} took longer than {self._patience:g} s: try again.")

    def open(self) -> None:
        """Admit operations."""
        self._is_closed = False
        with self._changed:
            self._changed.notify_all()
