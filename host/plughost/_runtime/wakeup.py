"""Requests to stop: the main thread sleeps until another thread, or a signal, has made enough of them."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from time import monotonic


class StopRequests:
    """Counts how often a host was asked to stop.

    Python runs signal handlers in the main thread only, where a lock would not do: it does not wake for a signal that
    another thread gets, or that comes just before the sleep, and a handler that takes it could deadlock. So who waits
    reads from a socket, to which Python writes for each signal.
    """

    def __init__(self) -> None:
        self._number = 0
        self._writer: socket.socket | None = None

    def add(self) -> None:
        """Count one more. Safe in a signal handler."""
        self._number += 1
        writer = self._writer
        if writer is not None:
            with suppress(OSError):  # the socket is full, or closed since nobody sleeps
                writer.send(b"!")

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Sleep until there were so many, or for some seconds; return whether there were."""
        until = None if timeout is None else monotonic() + timeout
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.setblocking(False)
            self._writer = writer
            in_main = threading.current_thread() is threading.main_thread()
            before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False) if in_main else -1
            try:
                while self._number < number:
                    left = None if until is None else until - monotonic()
                    if left is not None and left <= 0:
                        break
                    reader.settimeout(left)
                    with suppress(TimeoutError):
                        reader.recv(64)
            finally:
                self._writer = None
                if in_main:
                    signal.set_wakeup_fd(before)
        return self._number >= number
