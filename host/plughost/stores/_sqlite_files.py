"""SQLite's files: the only module that opens databases, so that none of their locks are dropped.

When a process closes any descriptor of a file, POSIX drops all locks that the process holds on it. The next process
that opens the database then takes itself for the only one. When it leaves, it deletes the write-ahead log that the
first process still writes to. SQLite takes care of this, so only SQLite opens a database, never a plain descriptor.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from plughost._files import make_folder
from plughost.stores._errors import Busy, Damaged, StoreError, Unavailable, one_line, translate, translated

QUICK_CHECK_LIMIT: Final = 64 * 1024 * 1024
"""Up to this size, in bytes, a file is checked when its store opens, which takes about a second on a slow disk."""

_NO_SHARED_MEMORY: Final = frozenset({"SQLITE_READONLY_DIRECTORY", "SQLITE_CANTOPEN"})


def create(path: Path) -> None:
    """Make a database without tables that only its owner may read, unless it exists.

    SQLite's other files get the same mode. The file has a header: an empty one has lost its content.
    """
    if path.exists():
        return
    make_folder(path.parent)
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute("PRAGMA user_version = 0")  # makes a header
        content = memory.serialize()
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:  # closed before the file gets the name by which others open it
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another process was quicker
            os.link(new, path)
    finally:
        new.unlink()


def real_path(path: Path, suffix: str = "") -> Path:
    """Return the file that a link leads to, or one of SQLite's other files, which are beside that one."""
    return Path(f"{os.path.realpath(path)}{suffix}")


def connect(path: Path, timeout: float, *, mode: str = "rw", for_pony: bool = False) -> sqlite3.Connection:
    """Return a connection in autocommit mode to an existing database, for one thread at a time.

    `mode` is a mode of SQLite's URIs. `for_pony` adds the SQL functions that Pony's queries need.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    if not for_pony:
        return sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True, check_same_thread=False)
    from pony.orm.dbproviders.sqlite import SQLitePool  # noqa: PLC0415 - only stores with entities need Pony

    pool = SQLitePool(False, uri, True, timeout=timeout, check_same_thread=False, uri=True)
    pool._connect()  # noqa: SLF001 - there is no public way to a connection with Pony's functions
    connection: sqlite3.Connection = pool.con
    if sys.version_info >= (3, 12):  # else Pony's quoted name of a missing column is read as a string
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, False)
    return connection


def scratch() -> sqlite3.Connection:
    """Return a connection to a temporary database, which vanishes with it, even if the process is killed."""
    return sqlite3.connect("", isolation_level=None, check_same_thread=False)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that reads a database, whether a host serves it or not."""
    return SQLiteFile("", path, read_only=True).connect(30)


def copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy a database over another. `Busy` if one of them is locked for longer than its connection waits."""

    def refuse_lock(status: int, _remaining: int, _total: int) -> None:
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:  # `backup` would wait without limit
            raise Busy("Another process has the database locked: let it end its transaction, and try again.")

    source.backup(target, progress=refuse_lock)


class SQLiteFile:
    """A store's file, which is never made again once it was opened.

    Methods that find it damaged, lost or replaced raise `Damaged`.
    """

    def __init__(self, store: str, path: Path, *, read_only: bool = False) -> None:
        self.path: Path = path
        self._read_only = read_only
        self._name = f"The file of the store {store}"
        self._status: os.stat_result | None = None  # when it was last seen; None before it is opened
        self._parent = path.parent  # of the log
        self._parent_changed = 0  # when the log was last seen there
        self._log_status: os.stat_result | None = None  # of the write-ahead log, while a connection writes
        self._log_descriptor = -1  # harmless: SQLite locks the database and its shared memory, but no log
        self._log_size = 0
        self._is_immutable = False

    @property
    def _log(self) -> Path:
        return real_path(self.path, "-wal")

    @property
    def _index(self) -> Path:
        return real_path(self.path, "-shm")

    def create(self) -> None:
        """Make the file unless it is there. `Damaged` if it was deleted."""
        if self._status is not None:
            self._stat(self.path)
            return
        self.refuse_lost()
        if not self._read_only:
            create(self.path)

    def connect(self, timeout: float, *, for_pony: bool = False) -> sqlite3.Connection:
        self.refuse_lost()
        if not self._read_only:
            return connect(self.path, timeout, for_pony=for_pony)
        connection = connect(self.path, timeout, mode="ro", for_pony=for_pony)
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.Error as error:
            connection.close()
            # A folder that takes no files has no memory to share with writers, so there must be no writer.
            if getattr(error, "sqlite_errorname", "") not in _NO_SHARED_MEMORY or self._log.exists():
                raise
            self._is_immutable = True
            return connect(self.path, timeout, mode="ro&immutable=1", for_pony=for_pony)
        return connection

    def open(
        self, timeout: float, *, writes: bool, for_pony: bool = False, may_be_new: bool = False
    ) -> sqlite3.Connection:
        """Return a connection ready for operations, only to the remembered file unless it `may_be_new`."""
        verify = self.verify if not may_be_new else lambda: None
        verify()  # before SQLite makes a missing log again
        connection = self.connect(timeout, for_pony=for_pony)
        try:
            self.check_header(connection)
            verify()
            if writes:
                self._use_wal(connection, time.monotonic() + timeout)
            else:
                connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection, deadline: float) -> None:
        """Switch the file to WAL. SQLite does not wait while another process does the same."""
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not isinstance(translate(error, self._name), Busy) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def remember(self) -> None:
        """Check the present file, and remember it as the store's."""
        found = self._stat(self.path)
        self._is_immutable = False
        if self._status is not None or found.st_size <= QUICK_CHECK_LIMIT:
            self.check_integrity()
        self._status = found

    def track_log(self) -> None:
        """Remember the write-ahead log that a new connection writes to."""
        self.forget_log()
        with suppress(OSError):  # it is gone already
            log = self._log
            self._parent = log.parent
            self._parent_changed = self._parent.stat().st_mtime_ns
            self._log_descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
            self._log_status = os.fstat(self._log_descriptor)

    def forget_log(self) -> None:
        """Forget the log, which the last connection removes when it closes."""
        self._log_status, self._log_size = None, 0
        if self._log_descriptor >= 0:
            os.close(self._log_descriptor)
            self._log_descriptor = -1

    def verify(self) -> None:
        """Check that the file and its log are in place."""
        self._verify_file()
        self._verify_log()

    def verify_to_write(self) -> None:
        """Check also that the log was not shortened. Call it only from the connection that writes.

        A write behind the end of a shortened log leaves a hole, which a checkpoint would copy to the file.
        """
        self.verify()
        if self._log_descriptor >= 0:
            size = os.lseek(self._log_descriptor, 0, os.SEEK_END)
            if size < self._log_size:  # a checkpoint may have emptied it
                try:
                    self.check_integrity()
                except StoreError as error:
                    raise Damaged(
                        f"{self._name} lost its log, {self._log.name}: shortened while in use, with what it held"
                    ) from error
            self._log_size = size

    def _verify_log(self) -> None:
        """Check that the log is still the one that is written to.

        The folder's status changes if a file in it is removed or made. Asking for the log's own status would cost 5 %
        of all writes: Linux records the time of a file's next change more exactly once somebody has asked for it.
        """
        known = self._log_status
        if known is None:
            return
        changed = self._stat(self._parent).st_mtime_ns
        if changed != self._parent_changed:
            with suppress(FileNotFoundError):
                if os.path.samestat(self._log.stat(), known):
                    self._parent_changed = changed
                    return
            raise Damaged(f"{self._name} lost its log, {self._log.name}: deleted or replaced while in use")

    def _verify_file(self) -> None:
        """Check that the file is still there, and neither another nor a shorter one."""
        known = self._status
        if known is None:
            return
        found = self._stat(self.path)
        is_same = found.st_ino == known.st_ino and found.st_dev == known.st_dev
        if not is_same or (self._is_immutable and found.st_mtime_ns != known.st_mtime_ns):
            raise Damaged(f"{self._name} was replaced by another file while it was in use")
        if found.st_size < known.st_size:  # VACUUM may have shortened it
            self.check_integrity()
            if not found.st_size:
                raise Damaged(f"{self._name} is empty, and was not")
        self._status = found

    @property
    def is_lost(self) -> bool:
        """Whether it was deleted before it was opened here: only then is there a log or its index without it."""
        # Check the log first, since another process makes it last.
        return self._status is None and bool(self._left_over()) and not self.exists()

    def _left_over(self) -> list[str]:
        """Return the names of the files beside the database that a process left when it was killed."""
        return [each.name for each in (self._log, self._index) if each.exists()]

    def refuse_lost(self) -> None:
        """Refuse to start in the place of a file that was deleted, emptied, or lost its log, and a folder in its place.

        SQLite makes a log before its index, and removes it afterwards.
        """
        if self.path.is_dir():
            raise Damaged(f"{self.path} is a folder: move it away, and put the store's file or a backup in its place")
        if self.is_lost:
            left = " and ".join(self._left_over())
            raise Damaged(f"{self.path} was deleted: restore a backup, or delete {left}, too, to begin empty")
        if self._status is None and self.exists() and not self._stat(self.path).st_size:
            files = " and ".join(["it", *self._left_over()])
            raise Damaged(f"{self.path} was emptied: restore a backup, or delete {files} to begin empty")
        if self._status is None and not self._log.exists() and self._index.exists() and not self._log.exists():
            raise Damaged(
                f"{self._log} was deleted, with the last commits: if no host serves the store, put it back, restore a"
                f" backup, or delete {self._index.name}, too, to go on without them"
            )

    def exists(self) -> bool:
        folder = self.path.parent
        try:
            if folder.is_file():
                raise Damaged(f"{folder} is a file, and the folder of SQLite stores is to be there: move the file away")
            return self.path.exists()
        except OSError as error:
            raise Damaged(f"{self._name} can't be looked at: {error.strerror}") from error

    def refuse_read_only(self) -> None:
        """Raise `Unavailable` if the file can't be written: SQLite opens such a file to read, which lasts."""
        self._stat(self.path)
        if not os.access(self.path, os.W_OK):
            raise Unavailable(f"{self._name} is read-only")

    def _stat(self, path: Path) -> os.stat_result:
        try:
            return os.stat(path)  # noqa: PTH116 - each write asks, and Path takes twice as long
        except FileNotFoundError as error:
            raise Damaged(f"{self._name} was deleted: put it or a backup back") from error
        except OSError as error:
            raise Damaged(f"{self._name} can't be looked at: {error.strerror}") from error

    def check_integrity(self, check: str = "quick_check") -> None:
        """Check the whole file by SQLite's `quick_check`, or by `integrity_check`, which also compares indexes."""
        with translated(self._name), closing(self.connect(30)) as connection:
            self.check_header(connection)
            found = one_line("\n".join(str(fault) for (fault,) in connection.execute(f"PRAGMA {check}(3)")))
        if found != "ok":
            raise Damaged(f"{self._name} is damaged: {found}")

    def checkpoint_if_replaced(self, connection: sqlite3.Connection) -> None:
        """If another file took this one's place, move the rest of the write-ahead log to the file it belongs to."""
        try:
            self.verify()
        except StoreError:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def check_header(self, connection: sqlite3.Connection) -> None:
        """Check that a connection leads to a database."""
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            found = translate(error, self._name) or error
            # Random bytes in a header may ask for an unknown encoding or format.
            raise Damaged(str(found)) if type(found) is StoreError else found from error
