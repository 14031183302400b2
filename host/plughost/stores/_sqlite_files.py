"""SQLite's files: the only module that opens databases, so that nobody drops the locks of those that are open.

POSIX takes all locks that a process holds on a file when the process closes any descriptor of that file. The next
process that opens the database then believes to be the only one. When it leaves, it deletes the write-ahead log that
the first process still writes to. So only SQLite opens a database, since it knows this, and never a plain descriptor.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import sys
import time
from contextlib import closing, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from plughost._files import make_folder
from plughost.stores._errors import Busy, Damaged, StoreError, one_line, translate

if TYPE_CHECKING:
    from pathlib import Path

QUICK_CHECK_LIMIT: Final = 64 * 1024 * 1024
"""Bytes up to which a file is looked through when its store opens, which takes about a second on a slow disk."""

_NO_FILES: Final = frozenset({"SQLITE_READONLY_DIRECTORY", "SQLITE_CANTOPEN"})
_WHICH: Final = attrgetter("st_dev", "st_ino")
_STATE: Final = attrgetter("st_dev", "st_ino", "st_mtime_ns")


def make(path: Path) -> None:
    """Make an empty database that only its owner may read, unless it is there; SQLite's files beside it follow suit."""
    if path.exists():
        return
    make_folder(path.parent)
    # The descriptor is closed before the file has the name by which others open it.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with suppress(FileExistsError):  # another process was quicker
            os.link(fresh, path)
    finally:
        fresh.unlink()


def connect(path: Path, timeout: float, *, mode: str = "rw", for_pony: bool = False) -> sqlite3.Connection:
    """Return a connection in autocommit mode to a database that is there, for one thread at a time.

    The mode is one of SQLite's URIs; Pony's queries need SQL functions of its own.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    if not for_pony:
        return sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True, check_same_thread=False)
    from pony.orm.dbproviders.sqlite import SQLitePool  # noqa: PLC0415 - only stores with entities need Pony

    maker = SQLitePool(False, uri, True, timeout=timeout, check_same_thread=False, uri=True)
    maker._connect()  # noqa: SLF001 - there is no public way to a connection with Pony's functions
    connection: sqlite3.Connection = maker.con
    if sys.version_info >= (3, 12):  # else a column that is gone is read as its own name, since Pony quotes all names
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, False)
    return connection


def scratch(*, writes: bool = True) -> sqlite3.Connection:
    """Return a connection to an empty database of its own, which is gone with it, also when the process is killed."""
    return sqlite3.connect("", isolation_level=None, check_same_thread=False)


def copy_into(path: Path, target: sqlite3.Connection) -> None:
    """Copy a database as it is at one moment over another."""
    with closing(SQLiteFile("", path, read_only=True).connect(30)) as source:
        copy(source, target)


def copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy a database over another; `Busy` where one of them is locked for longer than its connection waits."""

    def refuse_lock(status: int, _remaining: int, _total: int) -> None:
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:  # which `backup` waits for as long as it lasts
            raise Busy("Another process has the database locked: let it end its transaction, and try again.")

    source.backup(target, progress=refuse_lock)


def _told(what: attrgetter[tuple[int, ...]], path: str | Path) -> tuple[int, ...]:
    """Return what the system tells of a path; nothing where it is gone or out of sight."""
    try:
        return what(os.stat(path))  # noqa: PTH116 - each write asks, and Path takes twice as long
    except OSError:
        return ()


class SQLiteFile:
    """A store's file, remembered once it was opened: from then on it is never made again.

    What finds fault with it raises `Damaged`.
    """

    def __init__(self, store: str, path: Path, *, read_only: bool = False) -> None:
        self.path, self._read_only = path, read_only
        self._name = f"The file of the store {store}"
        self._identity: tuple[int, int] | None = None
        self._log: tuple[int, ...] | None = None  # the write-ahead log, while a connection writes
        self._place = path.parent
        self._folder: tuple[int, ...] = ()  # as it was when the log was seen there
        self._log_descriptor = -1  # SQLite locks the database and its shared memory, and no log
        self._log_size = 0
        self._size = self._changed = 0
        self._filled = self._immutable = False

    @property
    def opened(self) -> bool:
        """Whether it was open before."""
        return self._identity is not None

    def connect(self, timeout: float, *, for_pony: bool = False) -> sqlite3.Connection:
        """Return a connection, as the function `connect` does."""
        self.refuse_lost()
        if not self._read_only:
            return connect(self.path, timeout, for_pony=for_pony)
        connection = connect(self.path, timeout, mode="ro", for_pony=for_pony)
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.Error as error:
            connection.close()
            # In a folder that takes no files there is no memory to share with writers, so there must be none.
            alone = not self.path.with_name(f"{self.path.name}-wal").exists()
            if getattr(error, "sqlite_errorname", "") not in _NO_FILES or not alone:
                raise
            self._immutable = True
            return connect(self.path, timeout, mode="ro&immutable=1", for_pony=for_pony)
        return connection

    def open(
        self, timeout: float, *, writes: bool, for_pony: bool = False, may_be_new: bool = False
    ) -> sqlite3.Connection:
        """Return a connection ready for operations, to no other file than the remembered one unless it `may_be_new`."""
        verify = self.verify if not may_be_new else lambda: None
        try:
            connection = self.connect(timeout, for_pony=for_pony)
        except sqlite3.Error:
            verify()
            raise
        try:
            if self.opened:
                verify()  # a look would make a log anew that is gone
                self.look_at_header(connection)
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

    def _use_wal(self, connection: sqlite3.Connection, give_up: float) -> None:
        """Switch the file to WAL, which SQLite does not wait for while another process does the same."""
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not isinstance(translate(error, self._name), Busy) or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            else:
                return

    def remember(self) -> None:
        """Take the file that is there now for the store's, if it is in order."""
        found = self._look()
        self._immutable = False
        if self.opened or found.st_size <= QUICK_CHECK_LIMIT:
            self.look_through()
        self._identity, self._size, self._changed = (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns

    def follow_log(self) -> None:
        """Remember the write-ahead log that a new connection writes to."""
        self.leave_log()
        self._folder = _told(_STATE, self._place)
        self._log = _told(_WHICH, f"{self.path}-wal")
        with suppress(OSError):  # where it is gone already, its identity tells
            self._log_descriptor = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)

    def leave_log(self) -> None:
        """Forget it: the last connection that is closed removes it."""
        self._log, self._log_size = None, 0
        if self._log_descriptor >= 0:
            os.close(self._log_descriptor)
            self._log_descriptor = -1

    def verify(self) -> None:
        """See that the file and its log are in place."""
        self._verify_file()
        self._verify_log()

    def verify_to_write(self) -> None:
        """See that the file and its log are in place, and the log not shortened; only for who holds its descriptor.

        What is written behind the end of a shortened log leaves a hole, which a checkpoint would copy to the file.
        """
        self.verify()
        if self._log_descriptor >= 0:
            size = os.lseek(self._log_descriptor, 0, os.SEEK_END)
            if size < self._log_size:  # a checkpoint may have emptied it
                try:
                    self.look_through()
                except StoreError as error:
                    raise Damaged(
                        f"{self._name} lost its log, {self.path.name}-wal: shortened while in use, with what it held"
                    ) from error
            self._log_size = size

    def _verify_log(self) -> None:
        """See that what is written goes to a log that is found again.

        The folder tells whether anything in it was removed or made. To ask for the log itself costs 5 % of all writes:
        Linux notes the time of a file's next change more exactly once it was asked for.
        """
        if self._log is None:
            return
        folder = _told(_STATE, self._place)
        if folder != self._folder:
            if _told(_WHICH, f"{self.path}-wal") != self._log:
                raise Damaged(f"{self._name} lost its log, {self.path.name}-wal: deleted or replaced while in use")
            self._folder = folder

    def _verify_file(self) -> None:
        """See that the file is still there, and not another or a shorter one."""
        if self._identity is None:
            return
        found = self._look()
        if (found.st_dev, found.st_ino) != self._identity or (self._immutable and found.st_mtime_ns != self._changed):
            raise Damaged(f"{self._name} was replaced by another file while it was in use")
        if found.st_size < self._size:  # VACUUM may have shortened it
            self.look_through()
        self._size = found.st_size

    @property
    def lost(self) -> bool:
        """Whether it was deleted before it was ever opened here: a log without its file is left of nothing else."""
        # The log first, which another process makes last.
        return not self.opened and bool(_told(_WHICH, f"{self.path}-wal")) and not self.exists()

    def refuse_lost(self) -> None:
        """Refuse to begin anew in the place of a file that was deleted."""
        if self.lost:
            what = f"{self.path} was deleted, and not its log, {self.path.name}-wal"
            raise Damaged(f"{what}: restore a backup, or delete the log, too, to begin empty")

    def exists(self) -> bool:
        """Return whether it is there."""
        try:
            return self.path.exists()
        except OSError as error:
            raise Damaged(f"{self._name} can't be looked at: {error.strerror}") from error

    def _look(self) -> os.stat_result:
        try:
            return os.stat(self.path)  # noqa: PTH116 - each write asks, and Path takes twice as long
        except FileNotFoundError as error:
            raise Damaged(f"{self._name} was deleted: put it or a backup back") from error
        except OSError as error:
            raise Damaged(f"{self._name} can't be looked at: {error.strerror}") from error

    def look_through(self, check: str = "quick_check") -> None:
        """Read all of the file, by SQLite's `quick_check`, or `integrity_check`, which compares indexes, too."""
        try:
            with closing(self.connect(30)) as connection:
                self.look_at_header(connection)
                found = one_line("\n".join(str(fault) for (fault,) in connection.execute(f"PRAGMA {check}(3)")))
        except sqlite3.Error as error:
            raise translate(error, self._name) or error from error
        if found != "ok":
            raise Damaged(f"{self._name} is damaged: {found}")

    def leave(self, connection: sqlite3.Connection) -> None:
        """Move what the write-ahead log still holds to the file that it belongs to, where another took its place."""
        with suppress(sqlite3.Error, Damaged):
            try:
                self.verify()
            except Damaged:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def look_at_header(self, connection: sqlite3.Connection) -> None:
        """See that a connection leads to a database, and not to an empty one where there was one."""
        try:
            (version,) = connection.execute("PRAGMA schema_version").fetchone()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            found = translate(error, self._name) or error
            # A header of random bytes may ask for an encoding or a format that there is none of.
            raise Damaged(str(found)) if type(found) is StoreError else found from error
        if version == 0 and self._filled:
            raise Damaged(f"{self._name} is empty, and was not")
        self._filled = self._filled or version > 0
