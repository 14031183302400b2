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
        self._connect = connect
        self._lock = threading.Lock()
        self._db: Session | None = None
        self._closed = False

    def hold(self, name: str) -> bool:
        """Return whether a name is this host's, which it claims if nobody has it.

        Raises:
            StoreError: The database can't be asked.
        """
        with self._lock:
            if self._closed:
                return False
            is_new = self._db is None
            self._db = self._db or self._connect()
            try:
                # Asked also where it is held: whether the connection is alive shows only then.
                return bool(self._db.rows(_CLAIM, name)[0][0])
            except StoreError:
                self._drop()
                if is_new:
                    raise
        return self.hold(name)

    def close(self) -> None:
        """Give all of it up, for good."""
        with self._lock:
            self._closed = True
            if self._db is not None:
                with suppress(StoreError):  # a server notices by and by that a connection was closed, and this at once
                    self._db.rows("SELECT pg_advisory_unlock_all()")
            self._drop()

    def _drop(self) -> None:
        if self._db is not None:
            self._db.connection.close()
            self._db = None
