"""Sessions of Pony that know which store they belong to, and providers that hold them to it.

This and `opening` are where the store layer touches Pony's inner works, to close what its users would fall into:
two stores in one session (which can hang for ever), writers that queue without a time-out, and a read that
takes SQLite's write lock unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pony.orm import core
from pony.orm.dbproviders.sqlite import SQLiteProvider

from plughost.stores.errors import Busy, MisusedStore

if TYPE_CHECKING:
    from plughost.stores.connections import Connections


class Session(core.DBSessionContextManager):  # type: ignore[misc] # Pony has no types
    """A `db_session` of one store; an instance may be used again and by several threads."""

    __slots__ = ("connections", "writes")

    def __init__(self, connections: Connections, *, writes: bool, optimistic: bool = True) -> None:
        """Make a session.

        Args:
            connections: Those of the store.
            writes: Whether it is a transaction that may write, or may only read, each query for itself.
            optimistic: Whether Pony is to compare what it read with what is there when it writes.
        """
        super().__init__(immediate=writes, optimistic=optimistic or not writes, strict=True)
        self.connections = connections
        self.writes = writes


def refuse_nesting(label: str) -> None:
    """Refuse a store operation inside another one of this thread.

    Args:
        label: The store that it is of.

    Raises:
        MisusedStore: There is one; the message names both.
    """
    outer = core.local.db_session
    if outer is None:
        return
    other = outer.connections.label if isinstance(outer, Session) else "db_session of Pony's own"
    message = (
        f"An operation of the {label} was begun inside one of the {other}. Do one after the other: "
        "two at once in a thread can wait for each other for ever."
    )
    raise MisusedStore(message)


class Guarded:
    """A mixin for Pony's providers: checks each session at its first query."""

    pool: Connections

    def set_transaction_mode(self, connection: Any, cache: Any) -> None:
        """Begin what the session needs, if it may use this store.

        Raises:
            MisusedStore: It is another store's session, or one that may only read and is about to write.
        """
        session = cache.db_session
        if not isinstance(session, Session) or session.connections is not self.pool:
            mine = session.connections.label if isinstance(session, Session) else "db_session of Pony's own"
            message = (
                f"Entities of the {self.pool.label} were used in an operation of the {mine}: use its own run or read."
            )
            raise MisusedStore(message)
        if cache.immediate and not session.writes:
            message = (
                f"A read of the {self.pool.label} was about to write: use run. (Pony takes db.execute, "
                "get_connection and anything after commit() for writing; db.select is for reading.)"
            )
            raise MisusedStore(message)
        super().set_transaction_mode(connection, cache)  # type: ignore[misc] # a mixin; the provider comes after it


class GuardedSQLite(Guarded, SQLiteProvider):  # type: ignore[misc] # Pony has no types
    """Pony's SQLite provider, whose writers wait with a time-out."""

    def acquire_lock(self) -> None:
        """Wait for the other writers of this process.

        Raises:
            Busy: They took too long.
        """
        if not self.transaction_lock.acquire(timeout=self.pool.patience):
            message = f"The {self.pool.label} is busy: other writers held it for {self.pool.patience:g} s."
            raise Busy(message)

    def execute(self, cursor: Any, sql: str, arguments: Any = None, returning_id: bool = False) -> Any:
        """Run a statement.

        Raises:
            ValueError: A string holds U+0000, which PostgreSQL's driver refuses in the same way.
        """
        values = arguments.values() if isinstance(arguments, dict) else arguments or ()
        if any("\0" in value for value in values if isinstance(value, str)):
            message = "A string literal cannot contain NUL (0x00) characters."
            raise ValueError(message)
        return super().execute(cursor, sql, arguments, returning_id)
