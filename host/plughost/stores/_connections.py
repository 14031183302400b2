"""A bounded pool of connections to one store's database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from plughost.stores._errors import Busy, Refused
from plughost.stores._operation import Waits

_LOOK_AGAIN: Final = 0.05


class Pool:
    """Connections that are each used by one operation at a time, whatever its thread.

    There are never more than `size`. Who finds all of them in use waits. Those that nobody needed for a while are
    closed, down to the last one.

    Attributes:
        size: How many there may be.
        waits: How often and how long operations waited for one.
    """

    def __init__(
        self, open_one: Callable[[], Any], fit: Callable[[Any], bool], *, label: str, size: int, idle: float
    ) -> None:
        """Open nothing yet.

        Args:
            open_one: Returns a new connection that is ready for use.
            fit: Returns whether a connection can be used, or used again.
            label: The store, for messages.
            size: See the class.
            idle: Seconds after which a connection that nobody needed is closed.
        """
        self.size = size
        self.waits = Waits()
        self._open_one = open_one
        self._fit = fit
        self._label = label
        self._keep_idle = idle
        self._lock = threading.Lock()  # quicker to take than the condition, which is for those who wait
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._idle: list[tuple[Any, float]] = []
        self._used = 0
        self._closed = False

    @property
    def used(self) -> int:
        """How many are in use."""
        return self._used

    @property
    def open(self) -> int:
        """How many there are."""
        return self._used + len(self._idle)

    def take(self, deadline: float) -> Any:
        """Return a connection that is the caller's until `give`.

        Args:
            deadline: Until when to wait, as `time.monotonic` tells it.

        Raises:
            Busy: All were in use for too long.
            StoreError: What opening one raised.
        """
        while True:
            connection = self._reserve(deadline)
            try:
                if connection is None:
                    connection = self._open_one()
                elif not self._fit(connection):
                    self.give(connection)
                    continue
            except Refused:
                self._free()
                # The server is there, and has no place for one more: it or another operation may have one soon.
                if time.monotonic() >= deadline:
                    raise
                self._wait(_LOOK_AGAIN)
                continue
            except BaseException:
                self._free()
                raise
            return connection

    def give(self, connection: Any) -> None:
        """Take a connection back; one that is not fit any more is closed. Never raises."""
        now = time.monotonic()
        keep = self._fit(connection)
        with self._lock:
            self._used -= 1
            if keep and not self._closed:
                self._idle.append((connection, now))
            else:
                keep = False
            if self._waiting:
                self._changed.notify()
        if not keep:
            connection.close()
        if len(self._idle) > 1:
            self.shrink(now)

    def shrink(self, now: float) -> None:
        """Close the connections that nobody needed for a while, down to the last one."""
        idle = self._idle
        while len(idle) > 1 and now - idle[0][1] > self._keep_idle:
            with self._lock:
                if len(idle) < 2 or self._idle is not idle:
                    return
                connection, _ = idle.pop(0)
            connection.close()

    def disconnect(self) -> None:
        """Close every idle connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def close(self) -> None:
        """Close every connection, those in use when they are given back."""
        with self._lock:
            self._closed = True
        self.disconnect()

    def _reserve(self, deadline: float) -> Any:
        """Return an idle connection, or None for the right to open one."""
        with self._lock:
            begun = 0.0
            while not self._idle and self._used >= self.size:
                now = time.monotonic()
                begun = begun or now
                if now >= deadline:
                    self.waits.add(now - begun)
                    message = (
                        f"{self._label}: all {self.size} connections were in use for too long "
                        "(stores.pool_size says how many there may be)."
                    )
                    raise Busy(message)
                self._await(deadline - now)
            if begun:
                self.waits.add(time.monotonic() - begun)
            self._used += 1
            return self._idle.pop()[0] if self._idle else None

    def _await(self, seconds: float) -> None:
        """Wait until a connection is given back; call it with the lock held."""
        self._waiting += 1
        try:
            self._changed.wait(seconds)
        finally:
            self._waiting -= 1

    def _free(self) -> None:
        with self._lock:
            self._used -= 1
            self._changed.notify()

    def _wait(self, seconds: float) -> None:
        begun = time.monotonic()
        with self._lock:
            if not self._idle:
                self._await(seconds)
        self.waits.add(time.monotonic() - begun)
