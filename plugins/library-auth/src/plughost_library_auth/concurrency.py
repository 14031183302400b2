"""Turns: so many do something at once, and the next ones wait in the order in which they came."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from plughost import about_to_wait

_QUEUE_SECONDS: Final = 2.0  # how much there is to do at most before whoever comes last
_LEAST_WAITING: Final = 2
_MOST: Final = 15  # in all: fewer than a plugin may have wait beside its share of threads
_PATIENCE: Final = 10.0  # seconds, where checks take longer than was thought


class TooBusy(Exception):  # noqa: N818 - reads better where it is caught
    """So many wait for their turn that this one doesn't."""


class Turns:
    """Lets so many in at once; as many wait as can be let in within two seconds, and the rest is refused at once."""

    def __init__(self, slots: int, patience: float = _PATIENCE) -> None:
        """Take how many are let in at once, and after how many seconds one that waits is refused anyway."""
        self._slots = self._free = slots
        self._patience = patience
        self._guard = allocate_lock()
        self._waiting: deque[LockType] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Wait for a turn, and have it.

        Args:
            seconds: What it will take, about.

        Raises:
            TooBusy: Too many wait, or this one waited for too long.
        """
        ticket = self._ticket(seconds)
        about_to_wait(long=True)  # bcrypt lets go of the interpreter's lock, and other requests must not wait for it
        if not ticket.acquire(timeout=self._patience):
            with self._guard:
                if not ticket.acquire(blocking=False):
                    self._waiting.remove(ticket)
                    raise TooBusy
        try:
            yield
        finally:
            with self._guard:
                if self._waiting:
                    self._waiting.popleft().release()
                else:
                    self._free += 1

    def _ticket(self, seconds: float) -> LockType:
        """Return a lock that is free as soon as it is its holder's turn."""
        at_most = min(max(int(self._slots * _QUEUE_SECONDS / seconds), _LEAST_WAITING), _MOST - self._slots)
        ticket = allocate_lock()
        with self._guard:
            if self._free:
                self._free -= 1
            elif len(self._waiting) >= at_most:
                raise TooBusy
            else:
                ticket.acquire()
                self._waiting.append(ticket)
        return ticket
