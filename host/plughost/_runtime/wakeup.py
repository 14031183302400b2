"""Requests to stop: the main thread sleeps until signals or other threads have made enough of them."""

from __future__ import annotations

import signal
import socket
from contextlib import suppress
from math import inf
from time import monotonic, sleep
from typing import Final

_LOOK_SECONDS: Final = 0.05


class StopRequests:
    """Counts how often a host was asked to stop.

    Python runs signal handlers in the main thread only. A lock would not do there: a signal that another thread gets,
    or that comes just before the sleep, would not wake it, and a handler that takes it could deadlock. So `wait` reads
    from a socket, to which Python writes at each signal.
    """

    def __init__(self) -> None:
        self._count = 0
        self._writer: socket.socket | None = None

    @property
    def made(self) -> bool:
        return self._count > 0

    def add(self) -> None:
        """Count one more request. Safe in a signal handler."""
        self._count += 1
        writer = self._writer
        if writer is not None:
            with suppress(OSError):  # the socket is full, or closed: nobody sleeps
                writer.send(b"!")

    def wait(self, count: int, timeout: float | None = None) -> bool:
        """Let the main thread sleep until there were `count` requests, or for `timeout` seconds. Return whether so."""
        deadline = inf if timeout is None else monotonic() + timeout
        try:
            reader, writer = socket.socketpair()
        except OSError:  # there is no descriptor for it, and a host that stops must go on
            while self._count < count and monotonic() < deadline:
                sleep(_LOOK_SECONDS)
            return self._count >= count
        with reader, writer:
            writer.setblocking(False)
            self._writer = writer
            previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            try:
                while self._count < count:
                    remaining = deadline - monotonic()
                    if remaining <= 0:
                        break
                    reader.settimeout(None if timeout is None else remaining)
                    with suppress(TimeoutError):
                        reader.recv(64)
            finally:
                self._writer = None
                signal.set_wakeup_fd(previous)
        return self._count >= count
