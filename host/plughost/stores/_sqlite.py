"""SQLite: a file per store, in WAL mode, with every commit on the disk before it is acknowledged."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from plughost._files import make_folder
from plughost.stores import _sqlite_files
from plughost.stores._errors import Busy, Damaged, StoreError, Unavailable, translated
from plughost.stores._pool import Pool, WaitStatistics
from plughost.stores._sessions import (
    MAX_INTEGER,
    BaseAdminSession,
    BaseDatabase,
    Fetch,
    Mode,
    Session,
    check_values,
    fetch_all,
)
from plughost.stores._sqlite_writer import Writer

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

T = TypeVar("T")

_VERIFY_INTERVAL: Final = 1.0
_CONVERTED_TYPES: Final = frozenset({Decimal, datetime})


class SQLite(BaseDatabase):
    """A store in a SQLite file."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        super().__init__(store, config)
        assert config.path is not None
        self.path: Path = config.path
        # Not the database file itself: closing another descriptor of it would drop SQLite's locks.
        self.lock_file: Path = config.path.with_name(f"{config.path.name}.lock")
        self.file: _sqlite_files.SQLiteFile = _sqlite_files.SQLiteFile(store, config.path, read_only=config.read_only)

    def sessions(self, *, for_pony: bool) -> SQLiteSessions:
        """Return what makes sessions, after checking the database. `Damaged` if it did not pass the check."""
        self.file.remember()
        return SQLiteSessions(self, for_pony=for_pony)

    def check(self) -> None:
        """Check the whole database, if it exists. Raise a `StoreError` if it is not in order."""
        if self.exists():
            self.file.check_integrity("integrity_check")
        elif self.lock_file.exists() and not self.config.read_only:
            try:
                with self.exclusive_claim():
                    pass
            except Busy as error:
                message = f"a host serves it, but its file is gone: put {self.path} or a backup back"
                raise Damaged(message) from error

    def trial(self) -> SQLiteAdminSession:
        """Open a session in which migrations can be tried without a trace."""
        if not self.exists():
            return SQLiteAdminSession(_sqlite_files.scratch(), self.store)
        with translated(self.label):
            return _TrialSession(_sqlite_files.connect_to_read(self.path), self.store)

    def exists(self) -> bool:
        """Return whether the database, or a remnant of it, exists. Never make one."""
        return self.file.exists() or self.file.is_lost

    def administer(self) -> SQLiteAdminSession:
        """Open a session for administration, and make the database if it is missing."""
        try:
            with translated(self.label):
                self.file.create()
                seconds = max(self.config.patience, 30)
                connection = self.file.open(seconds, writes=not self.config.read_only, may_be_new=True)
        except OSError as error:
            raise Unavailable(f"The file of the {self.label} cannot be made: {error}") from error
        return SQLiteAdminSession(connection, self.store)

    def claims(self) -> None:
        """Return None: no other host can use it."""

    def shared_claim(self) -> AbstractContextManager[None]:
        """Claim that a host serves the store, together with other hosts. `Busy` while it is purged."""
        return self._claim(fcntl.LOCK_SH, f"The {self.label} is being purged or restored.")

    def exclusive_claim(self) -> AbstractContextManager[None]:
        """Exclude every host, for purging and restoring. `Busy` while a host serves the store."""
        self.refuse_read_only()
        refusal = f"A host serves the {self.label} ({self.path}): stop it first, or disable the plugin there."
        return self._claim(fcntl.LOCK_EX, refusal)

    @contextmanager
    def _claim(self, lock: int, refusal: str) -> Iterator[None]:
        try:
            make_folder(self.lock_file.parent)
            descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if self.config.read_only:  # where no file can be made, nobody purges either
                yield
                return
            raise Unavailable(f"The lock file of the {self.label} cannot be opened: {error}") from error
        with os.fdopen(descriptor):
            try:
                fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
            except OSError as error:
                raise Busy(refusal) from error
            yield

    def erase(self, _tables: Iterable[str]) -> None:
        """Drop the tables and the record of their migrations. Call it inside `exclusive_claim`."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            _sqlite_files.real_path(self.path, suffix).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)  # if it is a link


class SQLiteSessions(Pool):
    """Makes the sessions of one open store, and pools the connections of those that read."""

    def __init__(self, database: SQLite, *, for_pony: bool) -> None:
        config = database.config
        super().__init__(config, database.label)
        connect = partial(database.file.open, config.patience, for_pony=for_pony)
        self.writer: Writer = Writer(partial(connect, writes=True), database.file, config.patience, self.label)
        self.lock_waits: WaitStatistics = self.writer.slots.waits
        self._open_reader = partial(connect, writes=False)
        self._file, self._is_read_only = database.file, config.read_only
        self._verify_at = 0.0
        self._for_pony = for_pony

    def _connect(self, _deadline: float) -> sqlite3.Connection:
        return self._open_reader()

    def _is_clean(self, connection: sqlite3.Connection) -> bool:
        return not connection.in_transaction

    def session(self, mode: Mode, deadline: float) -> SQLiteSession:
        """Return a new session, which waits for connections and locks until a time of `time.monotonic`."""
        if mode is not Mode.READ:
            return WriteSession(self, deadline) if mode is Mode.WRITE else SingleSession(self, deadline)
        now = time.monotonic()
        if now > self._verify_at:
            self._file.verify()
            self._verify_at = now + _VERIFY_INTERVAL
        return ReadSession(self, deadline)

    def probe(self, *, writes: bool = False, deadline: float | None = None) -> None:
        """Check that the database is there and in order, and that it takes writes if `writes`."""
        self._open_reader().close()
        if writes and not self._is_read_only:
            self._file.refuse_read_only()

    def claim(self) -> None:
        """Open a first connection for Pony, which prepares it slowly. `SQLite.shared_claim` holds the claim."""
        if self._for_pony:
            self.release(self.acquire(0.0))

    def release_claim(self) -> None:
        self.disconnect()

    def tablespace_clauses(self, _session: Session, _tables: Iterable[str]) -> Iterable[str]:
        return ("",)

    def exhausted_table(self) -> str | None:
        """Return a table that has no id left, which SQLite reports as a full disk."""
        with suppress(sqlite3.Error, StoreError), closing(self._open_reader()) as connection:
            found = connection.execute("SELECT name FROM sqlite_sequence WHERE seq = ?", (MAX_INTEGER,)).fetchone()
            return str(found[0]) if found else None
        return None

    def close(self) -> bool:
        are_closed = super().close()  # before the writer, which as the last one empties the log
        self.writer.close()
        return are_closed and not self.writer.slots.in_use


class SQLiteSession(Session):
    """A session on SQLite."""

    __slots__ = ()

    dialect: Literal["sqlite"] = "sqlite"
    sessions: SQLiteSessions
    _new_id = attrgetter("lastrowid")

    @staticmethod
    def _count(cursor: Any) -> int:
        fetch_all(cursor)  # sqlite3 counts after the last row, and not for what begins with WITH
        count: int = cursor.rowcount
        return count if count >= 0 else int(cursor.execute("SELECT changes()").fetchone()[0])

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
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            with suppress(OverflowError):  # on the first or last day of all
                value = value.astimezone(UTC)  # text of one zone sorts and compares as moments do
        return value.isoformat(" ", "microseconds")
    return value


class SQLiteAdminSession(BaseAdminSession, SQLiteSession):
    """A session for administration of a SQLite file."""

    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""
        for statement in split_statements(sql):  # executescript would commit first
            self.rows(statement)

    def columns(self, table: str) -> frozenset[str]:
        # In its SQL their case is all the same.
        return frozenset(name for (name,) in self.rows("SELECT lower(name) FROM pragma_table_xinfo(?)", table))

    def check_privileges(self, _tables: Iterable[str], *, writes: bool) -> None:
        """Raise `Damaged` if the database's user lacks a privilege that the store needs. SQLite has none."""

    def size(self, _tables: Iterable[str]) -> int:
        """Return how many bytes the store takes on disk."""
        path = self.rows("PRAGMA database_list")[0][2]
        return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())

    def begin_transaction(self, *, shared: bool = False) -> None:
        """Begin a transaction that holds the lock of the store's migrations, or the `shared` one of all stores.

        Closing the connection rolls it back.
        """
        self.rows("BEGIN IMMEDIATE")  # keeps other writers out from its beginning

    def check_deferred(self) -> None:
        """Check the constraints that are deferred to the commit. Raise a `StoreError` if one is broken."""
        for table, row, parent, _ in self.rows("PRAGMA foreign_key_check"):
            raise StoreError(f"store {self._store}: row {row} of the table {table} refers to what is not in {parent}")

    def commit_transaction(self) -> None:
        """Commit the transaction. If this raises a `StoreError`, nothing of it was kept."""
        if not self.connection.in_transaction:
            raise StoreError(f"store {self._store}: the transaction was ended from inside")
        self.rows("COMMIT")


class _TrialSession(SQLiteAdminSession):
    """A session that reads a file. Its transaction changes a temporary copy, so that nobody waits for it."""

    def begin_transaction(self, *, shared: bool = False) -> None:
        copy = _sqlite_files.scratch()
        with translated(f"store {self._store}"), closing(self._connection) as source:
            self._connection = copy
            _sqlite_files.copy(source, copy)
        super().begin_transaction(shared=shared)


def split_statements(sql: str) -> Iterator[str]:
    """Yield the statements of a script. A semicolon in a string, comment or trigger ends none."""
    statement = ""
    for piece in sql.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    rest = statement + sql.rpartition(";")[2]
    if rest.strip():
        yield rest
