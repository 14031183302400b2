"""Claims: which of several hosts on one PostgreSQL database does what only one host should do."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from plughost.stores._errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from plughost.stores._sessions import Session

_CLAIM: Final = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' plughost ' || ?, 0))"


class Claims:
    """Advisory locks of this host, on their own connection. If that is lost, another host can acquire them."""

    def __init__(
        self, connect: Callable[[], Session], limited: Callable[[Any], AbstractContextManager[object]]
    ) -> None:
        """Open nothing yet. `limited` cuts a connection off whose server takes too long in a `with` block."""
        self._connect, self._limited = connect, limited
        self._lock = threading.Lock()
        self._db: Session | None = None
        self._is_closed = False

    def acquire(self, name: str) -> bool:
        """Claim a name for this host unless another host has it. Return whether this host has it now."""
        with self._lock:
            if self._is_closed:
                return False
            is_new_connection = self._db is None
            self._db = self._db or self._connect()
            try:
                # Query even if this host has the lock: only a query shows whether the connection is alive.
                return bool(self._query(self._db, _CLAIM, name))
            except StoreError:
                self._disconnect()
                if is_new_connection:
                    raise
        return self.acquire(name)

    def close(self) -> None:
        """Release all claims for good."""
        with self._lock:
            self._is_closed = True
            if self._db is not None:
                with suppress(StoreError):  # takes effect at once; the server notices a closed connection only later
                    self._query(self._db, "SELECT pg_advisory_unlock_all()")
            self._disconnect()

    def _query(self, db: Session, sql: str, *values: object) -> object:
        """Return the one value that a query finds."""
        with self._limited(db.connection):
            return db.rows(sql, *values)[0][0]

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.connection.close()
            self._db = None
