"""Sessions on SQLite: several connections that read, and one that writes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from plughost.stores._connections import Pool
from plughost.stores._errors import MisusedStore, StoreError
from plughost.stores._sessions import Fetch, Mode, Session, refuse_unfit
from plughost.stores._sqlite_writer import Writer

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig
    from plughost.stores._operation import Waits
    from plughost.stores._sqlite_identity import SQLiteFile

T = TypeVar("T")

_LOOK_EVERY: Final = 1.0
_CONVERTED: Final = frozenset({Decimal, datetime})


class SQLiteSessions:
    """Makes the sessions of one open store."""

    def __init__(
        self,
        open_one: Callable[..., sqlite3.Connection],
        file: SQLiteFile,
        config: StoreConfig,
        label: str,
    ) -> None:
        """Open nothing yet.

        Args:
            open_one: Returns a new connection, which may write if it is called with `writes=True`.
            file: The file.
            config: The settings.
            label: The store, for messages.
        """
        self.label = label
        self.writer = Writer(partial(open_one, writes=True), file.verify, config, label)
        open_reader = partial(open_one, writes=False)
        self.pool = Pool(open_reader, _fit, label=label, size=config.pool_size, idle=config.pool_idle)
        self._open_reader = open_reader
        self._file = file
        self._look_at = 0.0
        self._retired = False

    @property
    def lock_waits(self) -> Waits:
        """How often and how long operations waited for others to write."""
        return self.writer.waits

    def session(self, mode: Mode, deadline: float) -> SQLiteSession:
        """Return a new session; see `Sessions`."""
        if mode is Mode.READ:
            now = time.monotonic()
            if now > self._look_at:
                self._file.verify()
                self._look_at = now + _LOOK_EVERY
            return Reading(self, self.pool.take(deadline))
        return Writing(self, deadline) if mode is Mode.WRITE else Single(self, deadline)

    def look(self) -> None:
        """See whether the file is there and in order, over a new connection; see `Sessions`."""
        self._open_reader().close()

    def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self.pool.close()
        self.writer.close()

    def retire(self) -> bool:
        """Close all connections to a file that another may take the place of; tell whether all are closed."""
        if not self._retired:
            self.writer.leave(self._file.leave)
        self._retired = True
        self.close()
        return not self.pool.used and not self.writer.used


def _fit(connection: sqlite3.Connection) -> bool:
    return not connection.in_transaction


class SQLiteSession(Session):
    """A session on SQLite."""

    __slots__ = ("_connection", "_ended", "sessions")

    engine_name: Literal["sqlite"] = "sqlite"
    writes = True

    def __init__(self, sessions: SQLiteSessions, connection: sqlite3.Connection | None = None) -> None:
        """Begin."""
        self.sessions = sessions
        self._connection = connection
        self._ended = False

    def _insert(self, sql: str, values: tuple[object, ...]) -> int:
        return self.execute(_row_id, sql, values)

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run a statement; see `Session`."""
        connection = self._connection or self.connection
        return fetch(connection.execute(sql, _bound(values)))

    @property
    def connection(self) -> Any:
        """The connection, in a transaction where the session writes."""
        if self._connection is None:
            if self._ended:
                message = f"{self.sessions.label}: a session was used after its operation was over."
                raise MisusedStore(message)
            self._connection = self._take()
        return self._connection

    def before(self) -> str:
        """Return nothing: no statement has to be preceded by another."""
        return ""

    def restart(self) -> None:
        """Undo what was written so far, and go on."""

    def _take(self) -> sqlite3.Connection:
        raise NotImplementedError


class Reading(SQLiteSession):
    """A session that only reads: each query sees what is committed by then. It waits for no writer."""

    __slots__ = ()
    writes = False

    def commit(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        self._ended = True
        if connection is not None:
            self.sessions.pool.give(connection)

    undo = commit


class Writing(SQLiteSession):
    """A transaction, which begins with its first statement."""

    __slots__ = ("_deadline",)

    def __init__(self, sessions: SQLiteSessions, deadline: float) -> None:
        """Begin with the first statement."""
        super().__init__(sessions)
        self._deadline = deadline

    def _take(self) -> sqlite3.Connection:
        return self.sessions.writer.begin(self._deadline)

    def commit(self) -> None:
        """Commit; see `Session`."""
        self._end(commit=True)

    def undo(self) -> None:
        """Roll back; see `Session`."""
        self._end(commit=False)

    def restart(self) -> None:
        """Undo what was written so far, and go on."""
        self._end(commit=False)
        self._ended = False

    def _end(self, *, commit: bool) -> None:
        connection, self._connection = self._connection, None
        self._ended = True
        if connection is not None:
            if commit and not connection.in_transaction:
                self.sessions.writer.end(commit=False)
                message = f"{self.sessions.label}: the transaction was ended from inside; nothing of it was kept"
                raise StoreError(message)
            self.sessions.writer.end(commit=commit)


class Single(SQLiteSession):
    """A session of one statement, which is a transaction."""

    __slots__ = ("_deadline",)

    def __init__(self, sessions: SQLiteSessions, deadline: float) -> None:
        """Begin with the statement."""
        super().__init__(sessions)
        self._deadline = deadline

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run the statement; see `Session`."""
        if self._ended:
            message = f"{self.sessions.label}: an operation of `single` is one statement; use `run` for several."
            raise MisusedStore(message)
        bound = _bound(values)
        self._ended = True
        return self.sessions.writer.single(self._deadline, fetch, sql, bound)

    def commit(self) -> None:
        """Do nothing: the statement is committed."""
        self._ended = True

    undo = commit


def _row_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _bound(values: tuple[object, ...]) -> tuple[Any, ...]:
    """Return values as SQLite takes them."""
    refuse_unfit(values)
    return tuple(map(_plain, values)) if any(value.__class__ in _CONVERTED for value in values) else values


def _plain(value: object) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
