"""Sessions on SQLite: several connections that read, and one that writes."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from plughost.stores._errors import StoreError, Unavailable
from plughost.stores._pool import Pool
from plughost.stores._sessions import MAX_INTEGER, Fetch, Mode, Session, Sessions, check_values
from plughost.stores._sqlite_writer import Writer

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig
    from plughost.stores._sqlite_files import SQLiteFile

T = TypeVar("T")

_VERIFY_INTERVAL: Final = 1.0
_CONVERTED_TYPES: Final = frozenset({Decimal, datetime})


class SQLiteSessions(Sessions):
    """Makes the sessions of one open store."""

    def __init__(
        self, connect: Callable[..., sqlite3.Connection], file: SQLiteFile, config: StoreConfig, label: str
    ) -> None:
        """Open nothing yet; `connect` returns a new connection, which may write if called with `writes=True`."""
        self.label = label
        self.writer = Writer(partial(connect, writes=True), file, config.patience, label)
        self.lock_waits = self.writer.slots.waits
        self._open_reader = partial(connect, writes=False)
        size, idle = config.pool_size, config.pool_idle
        self.pool = Pool(lambda _: self._open_reader(), _is_clean, label=label, size=size, idle=idle)
        self.acquire, self.release = self.pool.acquire, self.pool.release
        self._file, self._is_read_only = file, config.read_only
        self._verify_at = 0.0

    def session(self, mode: Mode, deadline: float) -> SQLiteSession:
        if mode is not Mode.READ:
            return WriteSession(self, deadline) if mode is Mode.WRITE else SingleSession(self, deadline)
        now = time.monotonic()
        if now > self._verify_at:
            self._file.verify()
            self._verify_at = now + _VERIFY_INTERVAL
        return ReadSession(self, deadline)

    def probe(self, *, writes: bool = False, deadline: float | None = None) -> None:
        self._open_reader().close()
        if writes and not self._is_read_only and not os.access(self._file.path, os.W_OK):
            raise Unavailable(f"The file of the {self.label} is read-only")

    def exhausted_table(self) -> str | None:
        with suppress(sqlite3.Error, StoreError), closing(self._open_reader()) as connection:
            found = connection.execute("SELECT name FROM sqlite_sequence WHERE seq = ?", (MAX_INTEGER,)).fetchone()
            return str(found[0]) if found else None
        return None

    def close(self) -> bool:
        self.pool.close()
        self.writer.close()
        return not self.pool.slots.in_use and not self.writer.slots.in_use


def _is_clean(connection: sqlite3.Connection) -> bool:
    return not connection.in_transaction


class SQLiteSession(Session):
    """A session on SQLite."""

    __slots__ = ()

    dialect: Literal["sqlite"] = "sqlite"
    sessions: SQLiteSessions
    _new_id = attrgetter("lastrowid")

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        connection = self._connection or self.connection
        return fetch(connection.execute(sql, _convert(values)))


class ReadSession(SQLiteSession):
    """A session that only reads: each query sees what is committed by then. It waits for no writer."""

    __slots__ = ()
    writes = False


class WriteSession(SQLiteSession):
    """A transaction, which begins with its first statement."""

    __slots__ = ()

    def _acquire(self) -> Any:
        return self.sessions.writer.begin(self._deadline)

    def commit(self) -> None:
        if self._detach() is not None:
            self.sessions.writer.end(commit=True)

    def undo(self) -> None:
        if self._detach() is not None:
            self.sessions.writer.end(commit=False)

    def restart(self) -> None:
        self.undo()
        self.ended = False


class SingleSession(SQLiteSession):
    """A session of one statement, which is a transaction by itself."""

    __slots__ = ()

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        if self.ended:
            self._refuse_second()
        converted = _convert(values)
        self.ended = True
        return self.sessions.writer.single(self._deadline, lambda writer: fetch(writer.execute(sql, converted)))


def _convert(values: tuple[object, ...]) -> tuple[Any, ...]:
    """Return values in types that SQLite takes."""
    check_values(values)
    for value in values:
        if value.__class__ in _CONVERTED_TYPES:
            return tuple(map(_convert_value, values))
    return values


def _convert_value(value: object) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else value
