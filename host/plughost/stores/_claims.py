"""Claims: which of several hosts on one PostgreSQL database does what only one of them should."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from plughost.stores._errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from plughost.stores._sessions import Session

_CLAIM: Final = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' plughost ' || ?, 0))"


class Claims:
    """What this host claimed, on a connection of its own: whoever loses that loses its claims to the next who asks."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        """Claim nothing yet."""
        self._connect = connect
        self._lock = threading.Lock()
        self._db: Session | None = None
        self._held: set[str] = set()
        self._closed = False

    def hold(self, name: str) -> bool:
        """Return whether a name is this host's, which it claims if nobody has it.

        Raises:
            StoreError: The database can't be asked.
        """
        with self._lock:
            if self._closed:
                return False
            if self._db is not None:
                with suppress(StoreError):  # it may be an old connection only
                    return self._claim(self._db, name)
                self._drop()
            self._db = self._connect()
            try:
                return self._claim(self._db, name)
            except StoreError:
                self._drop()
                raise

    def close(self) -> None:
        """Give all of it up, for good."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                with suppress(StoreError):  # a server notices by and by that a connection was closed, and this at once
                    self._db.rows("SELECT pg_advisory_unlock_all()")
            self._drop()

    def _claim(self, db: Session, name: str) -> bool:
        """Ask the database, also for what is held: whether the connection is alive shows only then."""
        if name in self._held:
            db.rows("SELECT 1")
        elif db.rows(_CLAIM, name)[0][0]:
            self._held.add(name)
        return name in self._held

    def _drop(self) -> None:
        self._held.clear()
        if self._db is not None:
            self._db.connection.close()
            self._db = None
