"""SQLite: a file per store, in WAL mode, with every commit on the disk before it is acknowledged."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pony.orm.dbproviders.sqlite import SQLitePool

from plughost.private_files import make_folder
from plughost.stores.connections import Connections
from plughost.stores.engines import quote
from plughost.stores.errors import Busy, StoreError, Unavailable
from plughost.stores.failures import translate
from plughost.stores.sessions import GuardedSQLite

if TYPE_CHECKING:
    from plughost.stores.config import StoreConfig
    from plughost.stores.engines import Row

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

    def connections(self) -> Connections:
        """Return a new pool of Pony connections."""
        label = f"store {self.store}"
        # Pony's own pool makes the connection, since it registers the SQL functions that its queries need. The
        # connection moves between threads, yet is never used by two at once.
        maker = SQLitePool(
            False,  # not a shared memory database
            str(self.path),
            True,  # make the file
            timeout=self.config.patience,
            check_same_thread=False,
        )

        def open_one() -> Any:
            maker._connect()  # noqa: SLF001 - there is no public way to a connection with Pony's functions
            connection, maker.con = maker.con, None
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            return connection

        return Connections(open_one, label=label, patience=self.config.patience, share_fate=False)

    def provider(self) -> type[GuardedSQLite]:
        """Return the Pony provider class."""
        return GuardedSQLite

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
        try:
            make_folder(self.path.parent)
            # SQLite gives its -wal and -shm files the mode of the database file.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            message = f"The file of the store {self.store} cannot be opened: {error}"
            raise Unavailable(message) from error
        connection = sqlite3.connect(self.path, timeout=max(self.config.patience, 30), isolation_level=None)
        try:
            self._use_wal(connection)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except sqlite3.Error as error:
            connection.close()
            raise translate(error, f"store {self.store}") or error from error
        return connection

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


class SQLiteAdministration:
    """A connection for administration; see `Administration`."""

    def __init__(self, connection: sqlite3.Connection, store: str) -> None:
        """Wrap a connection in autocommit mode."""
        self._connection = connection
        self._store = store

    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""
        # executescript would commit first.
        for statement in split_statements(sql):
            self.rows(statement)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run one statement, and return its rows."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise translate(error, f"store {self._store}") or error from error

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name."""
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        return int(self.rows(f"SELECT count(*) FROM {quote(table)}")[0][0])  # noqa: S608 - a quoted name

    def size(self, tables: Iterable[str]) -> int:
        """Return the size of the file and its write-ahead log in bytes."""
        path = Path(self.rows("PRAGMA database_list")[0][2])
        wal = path.with_name(f"{path.name}-wal")
        return path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Return a transaction that keeps other writers out from its beginning."""
        self.rows("BEGIN IMMEDIATE")
        try:
            yield
            if not self._connection.in_transaction:
                message = f"store {self._store}: the transaction was ended from inside"
                raise StoreError(message)
            self.rows("COMMIT")
        finally:
            self._connection.rollback()


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
