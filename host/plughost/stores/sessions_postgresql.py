"""Pony's PostgreSQL provider, guarded; importing this needs psycopg2."""

from __future__ import annotations

from typing import Any

from pony.orm.dbproviders.postgres import PGProvider

from plughost.stores.errors import ConnectionLost
from plughost.stores.failures import translate
from plughost.stores.sessions import Guarded


class GuardedPostgreSQL(Guarded, PGProvider):  # type: ignore[misc] # Pony has no types
    """Pony's PostgreSQL provider, which replaces stale connections after any kind of restart."""

    def should_reconnect(self, exc: BaseException) -> bool:
        """Return whether a first statement is to be sent again on a new connection, since this one is gone."""
        return isinstance(translate(exc, ""), ConnectionLost)

    def drop(self, connection: Any, cache: Any = None) -> None:
        """Close a connection that failed.

        Raises:
            ConnectionLost: It was in a transaction. Pony would forget that, take a new connection, carry on there,
                and commit the second half of the transaction without the first.
        """
        in_transaction = cache is not None and cache.in_transaction
        super().drop(connection, cache)
        if in_transaction:
            message = f"{self.pool.label}: the connection broke in the middle of a transaction, which is undone"
            raise ConnectionLost(message)
