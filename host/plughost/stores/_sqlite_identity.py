"""The file of a SQLite store: whether it is the one that was opened, and in order.

Here it is looked at by its name alone, and through connections of SQLite's (see `_sqlite_files`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from plughost.stores import _sqlite_files
from plughost.stores._errors import Damaged
from plughost.stores._failures import translate

QUICK_CHECK_LIMIT: Final = 64 * 1024 * 1024
"""Bytes up to which a file is looked through when its store opens, which takes about a second on a slow disk."""


class SQLiteFile:
    """A store's file, remembered once it was opened: from then on it is never made again.

    Attributes:
        path: Where it is.
    """

    def __init__(self, store: str, path: Path) -> None:
        """Remember nothing yet."""
        self.path = path
        self._name = f"The file of the store {store}"
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._filled = False

    @property
    def opened(self) -> bool:
        """Whether it was open before."""
        return self._identity is not None

    def prepare(self, connection: sqlite3.Connection, *, writes: bool) -> sqlite3.Connection:
        """Make a new connection ready for operations, and return it.

        Args:
            connection: To the file; it is closed where this raises.
            writes: Whether it may write.

        Raises:
            Damaged: It leads to another file than the one that was opened, or to one that holds no database.
        """
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            if not writes:
                connection.execute("PRAGMA query_only = ON")
            self.look_at_header(connection)
            self.verify()
        except BaseException:
            connection.close()
            raise
        return connection

    def remember(self) -> None:
        """Take the file that is there now for the store's.

        Raises:
            Damaged: It is not in order.
        """
        suspect = self.opened
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._unseen(error) from error
        if suspect or found.st_size <= QUICK_CHECK_LIMIT:
            self.look_through()
        self._identity, self._size = (found.st_dev, found.st_ino), found.st_size

    def verify(self) -> None:
        """See that the file is still there, and not another or a shorter one.

        Raises:
            Damaged: It isn't.
        """
        if self._identity is None:
            return
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._unseen(error) from error
        if (found.st_dev, found.st_ino) != self._identity:
            message = f"{self._name} was replaced by another file while it was in use"
            raise Damaged(message)
        if found.st_size < self._size:  # VACUUM may have shortened it
            self.look_through()
        self._size = found.st_size

    def look_through(self, check: str = "quick_check") -> None:
        """Read all of the file.

        Args:
            check: SQLite's pragma: `quick_check`, or `integrity_check`, which compares indexes with their tables, too.

        Raises:
            Damaged: Something is wrong with it; the message says what SQLite found.
        """
        try:
            with closing(_sqlite_files.connect(self.path, 30)) as connection:
                self.look_at_header(connection)
                found = "; ".join(str(line) for (line,) in connection.execute(f"PRAGMA {check}(3)"))
        except sqlite3.Error as error:
            raise translate(error, self._name) or error from error
        if found != "ok":
            message = f"{self._name} is damaged: {found}"
            raise Damaged(message)

    def leave(self, connection: sqlite3.Connection) -> None:
        """Move what the write-ahead log still holds to the file that it belongs to, where another took its place.

        Args:
            connection: One to the file that was opened.
        """
        with suppress(sqlite3.Error, Damaged):
            try:
                self.verify()
            except Damaged:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def look_at_header(self, connection: sqlite3.Connection) -> None:
        """See that a connection leads to a database, and not to an empty one where there was one.

        Raises:
            Damaged: It doesn't.
        """
        try:
            (version,) = connection.execute("PRAGMA schema_version").fetchone()
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise translate(error, self._name) or error from error
        if version == 0 and self._filled:
            message = f"{self._name} is empty, and was not"
            raise Damaged(message)
        self._filled = self._filled or version > 0

    def _unseen(self, error: OSError) -> Damaged:
        if isinstance(error, FileNotFoundError):
            return Damaged(f"{self._name} was deleted: put it or a backup back")
        return Damaged(f"{self._name} can't be looked at: {error.strerror}")
