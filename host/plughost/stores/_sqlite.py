"""SQLite: a file per store, in WAL mode, with every commit on the disk before it is acknowledged."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plughost._files import make_folder
from plughost.stores import _sqlite_files
from plughost.stores._databases import AdminSession, Database
from plughost.stores._errors import Busy, Damaged, StoreError, Unavailable, translate
from plughost.stores._sqlite_sessions import SQLiteSession, SQLiteSessions

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig


class SQLite(Database):
    """A store in a SQLite file."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        super().__init__(store, config)
        assert config.path is not None
        self.path: Path = config.path
        # Not the database file itself: closing another descriptor of it would drop SQLite's locks.
        self.lock_file = config.path.with_name(f"{config.path.name}.lock")
        self.file = _sqlite_files.SQLiteFile(store, config.path, read_only=config.read_only)

    def sessions(self, *, for_pony: bool) -> SQLiteSessions:
        self.file.remember()
        connect = partial(self.file.open, self.config.patience, for_pony=for_pony)
        return SQLiteSessions(connect, self.file, self.config, self.label)

    def check(self) -> None:
        if self.exists():
            self.file.check_integrity("integrity_check")
        elif self.lock_file.exists() and not self.config.read_only:
            try:
                with self.exclusive_claim():
                    pass
            except Busy as error:
                message = f"a host serves it, but its file is gone: put {self.path} or a backup back"
                raise Damaged(message) from error

    @contextmanager
    def trial(self) -> Iterator[SQLiteAdminSession]:
        # On a temporary copy, so that nobody waits for a trial.
        with closing(_sqlite_files.scratch()) as scratch:
            try:
                if self.exists():
                    _sqlite_files.copy_into(self.path, scratch)
            except sqlite3.Error as error:
                raise translate(error, self.label) or error from error
            yield SQLiteAdminSession(scratch, self.store)

    def exists(self) -> bool:
        return self.file.exists() or self.file.is_lost

    @contextmanager
    def administer(self) -> Iterator[SQLiteAdminSession]:
        with closing(self.connect()) as connection:
            yield SQLiteAdminSession(connection, self.store)

    def connect(self) -> sqlite3.Connection:
        """Return a plain connection in autocommit mode to the file, which is made unless it was opened before."""
        if self.file.was_opened and not self.exists():
            self.file.verify()  # raises that it was deleted: no other file is made in its place
        self.file.refuse_lost()
        writes = not self.config.read_only
        try:
            if writes:
                _sqlite_files.create(self.path)
            return self.file.open(max(self.config.patience, 30), writes=writes, may_be_new=True)
        except OSError as error:
            raise Unavailable(f"The file of the {self.label} cannot be made: {error}") from error
        except sqlite3.Error as error:
            raise translate(error, self.label) or error from error

    def shared_claim(self) -> AbstractContextManager[None]:
        return self._claim(fcntl.LOCK_SH, f"The {self.label} is being purged or restored.")

    def exclusive_claim(self) -> AbstractContextManager[None]:
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
        try:
            try:
                fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
            except OSError as error:
                raise Busy(refusal) from error
            yield
        finally:
            os.close(descriptor)

    def erase(self, tables: Iterable[str]) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


class SQLiteAdminSession(AdminSession, SQLiteSession):
    """A session for administration of a SQLite file."""

    def script(self, sql: str) -> None:
        for statement in split_statements(sql):  # executescript would commit first
            self.rows(statement)

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def columns(self, table: str) -> frozenset[str]:
        # In its SQL their case is all the same.
        return frozenset(name for (name,) in self.rows("SELECT lower(name) FROM pragma_table_xinfo(?)", table))

    def size(self, tables: Iterable[str]) -> int:
        path = self.rows("PRAGMA database_list")[0][2]
        return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())

    def begin_transaction(self, *, shared: bool = False) -> None:
        self.rows("BEGIN IMMEDIATE")  # keeps other writers out from its beginning

    def check_deferred(self) -> None:
        for table, row, parent, _ in self.rows("PRAGMA foreign_key_check"):
            raise StoreError(f"store {self._store}: row {row} of the table {table} refers to what is not in {parent}")

    def commit_transaction(self) -> None:
        if not self.connection.in_transaction:
            raise StoreError(f"store {self._store}: the transaction was ended from inside")
        self.rows("COMMIT")


def split_statements(sql: str) -> Iterator[str]:
    """Yield the statements of a script; a semicolon in a string, comment or trigger ends none."""
    statement = ""
    for piece in sql.split(";")[:-1]:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    rest = statement + sql.rpartition(";")[2]
    if rest.strip():
        yield rest
