"""The operation that a thread runs on a store, and how long it has waited."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from plughost.stores._errors import MisusedStore


class _Thread(threading.local):
    """The operation of this thread, and how many seconds it has waited so far."""

    label: str | None = None
    waited = 0.0


_thread: Final = _Thread()


def enter(label: str) -> None:
    """Begin an operation; `leave` ends it.

    Args:
        label: The store that it is of.

    Raises:
        MisusedStore: The thread is in one already; the message names both.
    """
    other = _thread.label
    if other is not None:
        message = (
            f"An operation of the {label} was begun inside one of the {other}. Do one after the other: "
            "two at once in a thread can wait for each other for ever."
        )
        raise MisusedStore(message)
    _thread.label = label
    _thread.waited = 0.0


def leave() -> None:
    """End the operation of this thread."""
    _thread.label = None


def waited() -> float:
    """Return how many seconds the last operation of this thread waited for connections and locks."""
    return _thread.waited


@dataclass(slots=True)
class Waits:
    """How often operations waited for something, and how long.

    Attributes:
        count: How often.
        seconds: How long, all together.
    """

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a wait of this thread's operation."""
        self.count += 1
        self.seconds += seconds
        _thread.waited += seconds
