"""A gate for a store's operations: open while the store serves, closed while its schema is replaced."""

from __future__ import annotations

import threading
import time
from typing import Final

from plughost.stores._errors import Busy, MisusedStore, StoreError, Unavailable
from plughost.stores._pool import current_operation

_POLL_INTERVAL: Final = 0.02


class Gate:
    """Admits operations unless there is a refusal, one per thread; entering and leaving takes no lock.

    Attributes:
        refusal: Why operations are refused; None while they are admitted. `MisusedStore` before the store is migrated,
            `Unavailable` once it is closed; in between, operations wait while it is `Busy`.
    """

    def __init__(self, label: str, patience: float) -> None:
        """Refuse operations at first; `drain` waits no longer than `patience` seconds."""
        self.refusal: StoreError | None = MisusedStore(
            f"The {label} is not open yet: stores open after the hooks that build the host. "
            "Use it in started, or when a request comes."
        )
        self._label, self._patience = label, patience
        self._running: dict[int, None] = {}

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
        """Begin an operation once the gate is open; raise the refusal, `Busy` after the deadline."""
        while True:
            self.begin()
            self._running[threading.get_ident()] = None
            if self.refusal is None:  # a `drain` from here on sees this operation
                return
            self.end()
            if not isinstance(self.refusal, Busy) or time.monotonic() >= deadline:
                self.check()
            time.sleep(_POLL_INTERVAL)

    def check(self) -> None:
        """Raise the refusal, if there is one, as a new exception, since several threads may raise it."""
        refusal = self.refusal
        if refusal is not None:
            raise type(refusal)(str(refusal))

    def end(self) -> None:
        """End this thread's operation, whether it entered or not."""
        current_operation.label = None
        self._running.pop(threading.get_ident(), None)

    def drain(self) -> None:
        """Make operations wait, and wait for running ones; if one takes too long, admit others and raise `Busy`."""
        before, pause = self.refusal, Busy(f"The {self._label} is being migrated.")
        if not isinstance(before, Unavailable):  # a closed store stays closed
            self.refusal = pause
        deadline = time.monotonic() + self._patience
        while self._running:
            if time.monotonic() > deadline:
                if self.refusal is pause:
                    self.refusal = before
                raise Busy(f"Requests that use the {self._label} took longer than {self._patience:g} s: try again.")
            time.sleep(_POLL_INTERVAL)
