"""SQLite: a file per store, in WAL mode, with every commit on the disk before it is acknowledged."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._files import make_folder
from plughost.stores import _sqlite_files
from plughost.stores._errors import Busy, StoreError, Unavailable
from plughost.stores._failures import translate
from plughost.stores._sql import quote
from plughost.stores._sqlite_identity import SQLiteFile
from plughost.stores._sqlite_sessions import SQLiteSessions

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig
    from plughost.stores._sql import Row

_PRAGMAS: Final = ("PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")


class SQLite:
    """A store in a SQLite file; an `Engine`."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        """Remember the file.

        Args:
            store: The store's name.
            config: Its settings, with a path.
        """
        assert config.path is not None
        self.store = store
        self.config = config
        self.path: Path = config.path
        self.file = SQLiteFile(store, config.path)

    def sessions(self, *, for_pony: bool) -> SQLiteSessions:
        """Return what makes sessions; see `Engine`."""
        self.file.remember()
        connect = _sqlite_files.connect_for_pony if for_pony else _sqlite_files.connect

        def open_one(*, writes: bool) -> sqlite3.Connection:
            try:
                connection = connect(self.path, self.config.patience)
            except sqlite3.Error:
                self.file.verify()
                raise
            return self.file.prepare(connection, writes=writes)

        return SQLiteSessions(open_one, self.file, self.config, f"store {self.store}")

    def check(self) -> None:
        """Look through the file; see `Engine`."""
        self.file.look_through("integrity_check")

    @contextmanager
    def trial(self) -> Iterator[tuple[SQLiteAdministration, SQLiteSessions]]:
        """Return a copy of the store that is gone afterwards, so that nobody waits for what is tried; see `Engine`."""
        unseen = SQLiteFile(self.store, self.path)
        copied = SQLiteSessions(_scratch, unseen, self.config, f"store {self.store}")
        with closing(_sqlite_files.scratch()) as scratch, closing(copied):
            try:
                if self.exists():
                    _sqlite_files.copy_into(self.path, scratch)
            except sqlite3.Error as error:
                raise self._told(error) from error
            yield SQLiteAdministration(scratch, self.store), copied

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.path.exists()

    @contextmanager
    def administer(self) -> Iterator[SQLiteAdministration]:
        """Return a connection for administration; see `Engine`."""
        connection = self.connect()
        try:
            yield SQLiteAdministration(connection, self.store)
        finally:
            connection.close()

    def connect(self) -> sqlite3.Connection:
        """Return a plain connection in autocommit mode to the file, which is made where it is missing.

        Raises:
            StoreError: As `translate` finds.
        """
        if self.file.opened and not self.exists():
            self.file.verify()  # says that it was deleted: nothing else is put in its place
        try:
            _sqlite_files.make(self.path)
        except OSError as error:
            message = f"The file of the store {self.store} cannot be made: {error}"
            raise Unavailable(message) from error
        try:
            connection = _sqlite_files.connect(self.path, max(self.config.patience, 30))
        except sqlite3.Error as error:
            raise self._told(error) from error
        try:
            if self.file.opened:
                self.file.look_at_header(connection)
            self._use_wal(connection)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except sqlite3.Error as error:
            connection.close()
            raise self._told(error) from error
        return connection

    def _told(self, error: sqlite3.Error) -> Exception:
        return translate(error, f"store {self.store}") or error

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch the file to WAL, which SQLite does not wait for while another process does the same."""
        give_up = time.monotonic() + self.config.patience
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not isinstance(translate(error, self.store), Busy) or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            else:
                return

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Return a claim that a host serves the store; see `Engine`."""
        with self._claim(fcntl.LOCK_SH, f"The store {self.store} is being purged or restored."):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Return a claim that excludes every host; see `Engine`."""
        with self._claim(fcntl.LOCK_EX, f"A host serves the store {self.store} ({self.path}): stop it first."):
            yield

    @contextmanager
    def _claim(self, how: int, refusal: str) -> Iterator[None]:
        # Not the database file itself: closing a second descriptor of it would drop SQLite's own locks.
        lock_file = self.path.with_name(f"{self.path.name}.lock")
        try:
            make_folder(lock_file.parent)
            descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"The lock file of the store {self.store} cannot be opened: {error}"
            raise Unavailable(message) from error
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise Busy(refusal) from error
        try:
            yield
        finally:
            os.close(descriptor)

    def erase(self, tables: Iterable[str]) -> None:
        """Delete the file and what SQLite keeps beside it."""
        for path in self.files():
            path.unlink(missing_ok=True)

    def files(self) -> tuple[Path, ...]:
        """Return the database file and those that SQLite keeps beside it, whether they are there or not."""
        return (self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm", "-journal")))


def _scratch(*, writes: bool) -> sqlite3.Connection:
    return _sqlite_files.scratch()


class SQLiteAdministration:
    """A connection for administration; see `Administration`."""

    def __init__(self, connection: sqlite3.Connection, store: str) -> None:
        """Wrap a connection in autocommit mode."""
        self.connection = connection
        self._store = store

    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""
        # executescript would commit first.
        for statement in split_statements(sql):
            self.rows(statement)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run one statement, and return its rows."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise translate(error, f"store {self._store}") or error from error

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name."""
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        return int(self.rows(f"SELECT count(*) FROM {quote(table)}")[0][0])  # noqa: S608 - a quoted name  # nosec B608

    def size(self, tables: Iterable[str]) -> int:
        """Return the size of the file and its write-ahead log in bytes."""
        path = Path(self.rows("PRAGMA database_list")[0][2])
        wal = path.with_name(f"{path.name}-wal")
        return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)

    def begin(self) -> None:
        """Begin a transaction that keeps other writers out from its beginning."""
        self.rows("BEGIN IMMEDIATE")

    def check_deferred(self) -> None:
        """Check that what rows refer to is there."""
        for table, row, parent, _ in self.rows("PRAGMA foreign_key_check"):
            message = f"store {self._store}: row {row} of the table {table} refers to what is not in {parent}"
            raise StoreError(message)

    def commit(self) -> None:
        """Commit what was begun."""
        if not self.connection.in_transaction:
            message = f"store {self._store}: the transaction was ended from inside"
            raise StoreError(message)
        self.rows("COMMIT")

    def make_shared(self, sql: str) -> None:
        """Make a table, unless it is there."""
        self.script(sql)


def split_statements(sql: str) -> Iterator[str]:
    """Yield the statements of a script; a semicolon in a string, comment or trigger ends none.

    Args:
        sql: The script; the last statement needs no semicolon.
    """
    statement = ""
    for piece in sql.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    rest = statement + sql.rpartition(";")[2]
    if rest.strip():
        yield rest
