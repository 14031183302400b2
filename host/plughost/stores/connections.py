"""The connections of one open store, handed to Pony in place of its own pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plughost.stores.watchdog import Watchdog


class Connections:
    """A pool in Pony's sense (`connect`, `release`, `drop`, `disconnect`), shared by all threads.

    Pony keeps a connection per thread, which nobody else can close, and asks PostgreSQL to `DISCARD ALL` after each
    session. Here a session takes whichever connection is idle, so that there are never more than sessions at once,
    threads may come and go, and closing the store closes them all.

    Attributes:
        label: The store and its plugin, for messages.
        patience: Seconds to wait for a lock.
    """

    def __init__(
        self,
        open_one: Callable[[], Any],
        *,
        label: str,
        patience: float,
        share_fate: bool,
        watchdog: Watchdog | None = None,
    ) -> None:
        """Remember how connections are made.

        Args:
            open_one: Returns a new connection that is ready for use.
            label: See the class.
            patience: See the class.
            share_fate: Whether one broken connection means that the idle ones are broken too, as after a restart
                of the server.
            watchdog: Told which connections are in use; ended with the pool.
        """
        self.label = label
        self.patience = patience
        self._open_one = open_one
        self._share_fate = share_fate
        self._watchdog = watchdog
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False

    def connect(self) -> tuple[Any, bool]:
        """Return a connection, and False: there is nothing left for Pony to set up on a new one."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._open_one()
        if self._watchdog is not None:
            self._watchdog.taken(connection)
        return connection, False

    def release(self, connection: Any) -> None:
        """Take a connection back; never raises, since what the session did is decided by now."""
        try:
            connection.rollback()
        except Exception:  # noqa: BLE001 - any driver's error means the same: it is of no more use
            self.drop(connection)
            return
        self._returned(connection)
        with self._lock:
            keep = not self._closed and not getattr(connection, "closed", False)
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def drop(self, connection: Any) -> None:
        """Close a connection that failed, and the idle ones if they share its fate."""
        self._returned(connection)
        connection.close()
        if self._share_fate:
            self.disconnect()

    def disconnect(self) -> None:
        """Close every idle connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close every connection, those in use when they are released."""
        with self._lock:
            self._closed = True
        self.disconnect()
        if self._watchdog is not None:
            self._watchdog.end()

    def _returned(self, connection: Any) -> None:
        if self._watchdog is not None:
            self._watchdog.returned(connection)
