"""A bounded pool of connections to one store's database, and how long operations wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from plughost._waiting import about_to_wait
from plughost.stores._errors import Busy, Refused

_LOOK_AGAIN: Final = 0.05


class _Operation(threading.local):
    """The operation that this thread runs, if any: the store's label, and the seconds that it has waited."""

    label: str | None = None
    waited = 0.0


operation: Final = _Operation()


@dataclass(slots=True)
class Waits:
    """How often, and how many seconds all together, operations waited for something."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a wait of this thread's operation."""
        self.count += 1
        self.seconds += seconds
        operation.waited += seconds


class Pool:
    """At most `size` connections, each used by one operation at a time; who finds all in use waits.

    A connection that nobody needed for `idle` seconds is closed, unless it is the last.
    """

    def __init__(
        self, open_one: Callable[[], Any], fit: Callable[[Any], bool], *, label: str, size: int, idle: float
    ) -> None:
        """Open nothing yet; `fit` returns whether a connection can be used, or used again."""
        self.size = size
        self.used = 0
        self.waits = Waits()
        self._open_one, self._fit, self._label, self._keep_idle = open_one, fit, label, idle
        self._lock = threading.Lock()  # quicker to take than the condition, which is for those who wait
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._idle: list[tuple[Any, float]] = []
        self._closed = False

    @property
    def open(self) -> int:
        """How many there are."""
        return self.used + len(self._idle)

    def take(self, deadline: float) -> Any:
        """Return a connection that is the caller's until `give`; `Busy` where all were in use until the deadline."""
        while True:
            connection = self._reserve(deadline)
            try:
                if connection is None:
                    return self._open_one()
                if self._fit(connection):
                    return connection
                self.give(connection)
            except Refused:  # the server has no place for one more: it or another operation may have one soon
                self._free()
                if time.monotonic() >= deadline:
                    raise
                with self._lock:
                    self._wait(_LOOK_AGAIN)
            except BaseException:
                self._free()
                raise

    def _reserve(self, deadline: float) -> Any:
        """Return an idle connection, or None for the right to open one."""
        with self._lock:
            while not self._idle and self.used >= self.size:
                left = deadline - time.monotonic()
                if left <= 0:
                    message = (
                        f"{self._label}: all {self.size} connections were in use for too long "
                        "(stores.pool_size says how many there may be)."
                    )
                    raise Busy(message)
                self._wait(left)
            self.used += 1
            return self._idle.pop()[0] if self._idle else None

    def _wait(self, seconds: float) -> None:
        """Wait until a connection is given back; call it with the lock held."""
        about_to_wait()
        begun = time.monotonic()
        self._waiting += 1
        self._changed.wait(seconds)
        self._waiting -= 1
        self.waits.add(time.monotonic() - begun)

    def _free(self) -> None:
        with self._lock:
            self.used -= 1
            self._changed.notify()

    def give(self, connection: Any) -> None:
        """Take a connection back; one that is not fit any more is closed. Never raises."""
        now = time.monotonic()
        keep = self._fit(connection)
        with self._lock:
            self.used -= 1
            keep = keep and not self._closed
            if keep:
                self._idle.append((connection, now))
            if self._waiting:
                self._changed.notify()
        if not keep:
            connection.close()
        if len(self._idle) > 1:
            self.shrink(now)

    def shrink(self, now: float) -> None:
        """Close the connections that nobody needed for a while, but for the last one."""
        while True:
            with self._lock:
                if len(self._idle) < 2 or now - self._idle[0][1] <= self._keep_idle:
                    return
                connection, _ = self._idle.pop(0)
            connection.close()

    def disconnect(self) -> None:
        """Close every idle connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def close(self) -> None:
        """Close every connection, those in use when they are given back."""
        self._closed = True
        self.disconnect()
