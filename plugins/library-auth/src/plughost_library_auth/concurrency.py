"""A fair semaphore with a bounded queue."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from plughost import about_to_wait

_QUEUE_SECONDS: Final = 2.0  # longest expected wait in the queue
_MIN_QUEUE: Final = 2
_MAX_TOTAL: Final = 15  # running and waiting; the host allows a plugin 16 in `about_to_wait`
_TIMEOUT: Final = 10.0  # seconds, in case the work takes longer than estimated


class TooBusy(Exception):  # noqa: N818 - reads better where it is caught
    """The queue is full, or the wait was too long."""


class FairSemaphore:
    """A first-in, first-out semaphore. It refuses at once whoever would expect to wait longer than two seconds."""

    def __init__(self, slots: int, timeout: float = _TIMEOUT) -> None:
        """Take the number of slots and the maximum seconds to wait for one."""
        self._slots = self._free = slots
        self._timeout = timeout
        self._guard = allocate_lock()
        self._waiting: deque[LockType] = deque()

    @property
    def waiting(self) -> int:
        """The number of waiting threads."""
        return len(self._waiting)

    @contextmanager
    def acquire(self, seconds: float) -> Iterator[None]:
        """Wait for a slot and hold it.

        Args:
            seconds: The estimated time that the slot is held.

        Raises:
            TooBusy: The queue is full, or the wait took too long.
        """
        waiter = self._enqueue(seconds)
        about_to_wait(long=True)  # bcrypt releases the GIL, and other requests must not wait
        if not waiter.acquire(timeout=self._timeout):
            with self._guard:
                if not waiter.acquire(blocking=False):
                    self._waiting.remove(waiter)
                    raise TooBusy
        try:
            yield
        finally:
            with self._guard:
                if self._waiting:
                    self._waiting.popleft().release()
                else:
                    self._free += 1

    def _enqueue(self, seconds: float) -> LockType:
        """Return a lock that is released when a slot is free for its holder."""
        max_waiting = min(max(int(self._slots * _QUEUE_SECONDS / seconds), _MIN_QUEUE), _MAX_TOTAL - self._slots)
        waiter = allocate_lock()
        with self._guard:
            if self._free:
                self._free -= 1
            elif len(self._waiting) >= max_waiting:
                raise TooBusy
            else:
                waiter.acquire()
                self._waiting.append(waiter)
        return waiter
