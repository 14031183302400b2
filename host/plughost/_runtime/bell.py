"""A bell: the main thread sleeps until another thread, or a signal, wakes it."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Self


class Bell:
    """Wakes a thread that sleeps.

    A lock would not do in the main thread, the only one in which Python runs signal handlers. A lock does not wake for
    a signal that the system gives to another thread, or that arrives just before the thread sleeps. And a handler that
    takes the lock itself could wait for ever.
    """

    def __enter__(self) -> Self:
        """Let each signal ring, where this is the main thread."""
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before: int | None = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let signals ring no more."""
        if self._before is not None:
            signal.set_wakeup_fd(self._before)
        self._reader.close()
        self._writer.close()

    def ring(self) -> None:
        """Wake the thread that sleeps; safe in a signal handler."""
        with suppress(OSError):  # it rings already, or nobody sleeps any more
            self._writer.send(b"!")

    def sleep_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep until a condition is true, which is looked at after each ring.

        Args:
            condition: What to look at.
            timeout: Seconds to sleep at most; for ever by default.

        Returns:
            Whether it is true.
        """
        until = None if timeout is None else monotonic() + timeout
        while not condition():
            patience = None if until is None else until - monotonic()
            if patience is not None and patience <= 0:
                return False
            self._reader.settimeout(patience)
            with suppress(TimeoutError):
                self._reader.recv(64)
        return True


class StopRequests:
    """How often a host was asked to stop."""

    def __init__(self) -> None:
        """Begin with nobody who has asked."""
        self._number = 0
        self._bell: Bell | None = None

    def ask(self) -> None:
        """Ask once more; safe in a signal handler."""
        self._number += 1
        bell = self._bell
        if bell is not None:
            bell.ring()

    def wait(self, number: int, timeout: float | None = None) -> None:
        """Sleep until so many have asked, or for some seconds."""
        with Bell() as self._bell:
            self._bell.sleep_until(lambda: self._number >= number, timeout)
        self._bell = None
