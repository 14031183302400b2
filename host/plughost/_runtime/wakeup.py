"""A wakeup queue: the main thread sleeps until another thread, or a signal, wakes it."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self


class WakeupQueue:
    """Wakes a thread that sleeps.

    Python runs signal handlers in the main thread only, where a lock would not do: it does not wake for a signal that
    another thread gets, or that comes just before the sleep, and a handler that takes it could deadlock.
    """

    def __enter__(self) -> Self:
        """Let each signal wake the thread, if this is the main thread."""
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let signals wake nobody any more."""
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        self._reader.close()
        self._writer.close()

    def wake(self) -> None:
        """Wake the thread. Safe in a signal handler."""
        with suppress(OSError):  # the socket is full, or closed since nobody sleeps
            self._writer.send(b"!")

    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep until a condition, checked after each wakeup, is true. Return whether it is.

        Args:
            condition: What to check.
            timeout: Seconds to sleep at most. For ever by default.
        """
        until = None if timeout is None else monotonic() + timeout
        while not condition():
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                return False
            self._reader.settimeout(left)
            with suppress(TimeoutError):
                self._reader.recv(64)
        return True


class StopRequests:
    """Counts how often a host was asked to stop."""

    def __init__(self) -> None:
        """Begin at none."""
        self._number = 0
        self._queue: WakeupQueue | None = None

    def add(self) -> None:
        """Count one more. Safe in a signal handler."""
        self._number += 1
        queue = self._queue
        if queue is not None:
            queue.wake()

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Sleep until there were so many, or for some seconds; return whether there were."""
        with WakeupQueue() as self._queue:
            self._queue.wait_until(lambda: self._number >= number, timeout)
        self._queue = None
        return self._number >= number
