"""A gate for a store's operations: open while the store serves, closed while its schema is replaced."""

from __future__ import annotations

import threading
import time
from typing import Final

from plughost.stores._errors import Busy, MisusedStore
from plughost.stores._pool import current_operation

_POLL_INTERVAL: Final = 0.02


class Gate:
    """Admits operations while it is open, one per thread; entering and leaving takes no lock."""

    def __init__(self, label: str, patience: float) -> None:
        """Begin open; `drain` waits no longer than `patience` seconds."""
        self.is_closed = False
        self._label, self._patience = label, patience
        self._running: set[int] = set()

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
            self._running.add(threading.get_ident())
            if not self.is_closed:  # a `drain` from here on sees this operation
                return
            self.end()
            if time.monotonic() >= deadline:
                raise Busy(f"The {self._label} is being migrated.")
            time.sleep(_POLL_INTERVAL)

    def end(self) -> None:
        """End this thread's operation, whether it entered or not."""
        current_operation.label = None
        self._running.discard(threading.get_ident())

    def drain(self) -> None:
        """Close the gate and wait for running operations; if one takes too long, reopen it and raise `Busy`."""
        self.is_closed = True
        deadline = time.monotonic() + self._patience
        while self._running:
            if time.monotonic() > deadline:
                self.is_closed = False
                raise Busy(f"Requests that use the {self._label} took longer than {self._patience:g} s: try again.")
            time.sleep(_POLL_INTERVAL)
