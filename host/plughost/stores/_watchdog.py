"""A watch over connections: a server that hangs would else hold its client, and the client's thread, for ever."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_LONGEST_LOOK: Final = 1.0


class Watchdog:
    """Cuts connections that are in use for too long.

    TCP tells of a server that is gone, and the server itself ends statements that take too long. One that is stopped
    in its tracks does neither: its kernel answers for it, and psycopg2 knows no time-out of its own.
    """

    def __init__(self, limit: float, name: str, shrink: Callable[[float], None]) -> None:
        """Watch nothing yet.

        Args:
            limit: Seconds after which a connection in use is cut.
            name: What is watched, to name the thread after.
            shrink: Called with the time at each look; closes connections that nobody needs.
        """
        self._limit = limit
        self._name = name
        self._shrink = shrink
        self._used: dict[int, tuple[Any, float]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def taken(self, connection: Any) -> None:
        """Take note that a connection is in use from now on."""
        self._used[id(connection)] = connection, time.monotonic() + self._limit
        if self._thread is None:
            self._start()

    def returned(self, connection: Any) -> None:
        """Take note that a connection is not in use any more."""
        self._used.pop(id(connection), None)

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._watch, name=f"{self._name} watchdog", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(min(_LONGEST_LOOK, self._limit / 4)):
            now = time.monotonic()
            for connection, deadline in list(self._used.values()):
                if now >= deadline:
                    _cut(connection)
            self._shrink(now)


def _cut(connection: Any) -> None:
    """Shut a connection's socket down, so that whoever waits for its server finds it closed."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as own:  # it may have been closed
        own.shutdown(socket.SHUT_RDWR)
