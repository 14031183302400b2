"""SQLite's files: the only module that opens databases, so that nobody drops the locks of those that are open.

POSIX takes all locks that a process holds on a file when the process closes any descriptor of that file. The next
process that opens the database then believes to be the only one. When it leaves, it deletes the write-ahead log that
the first process still writes to. So only SQLite opens a database, since it knows this, and never a plain descriptor.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from plughost._files import make_folder

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path) -> None:
    """Make an empty database that only its owner may read, unless it is there; SQLite's files beside it follow suit.

    Raises:
        OSError: It cannot be made.
    """
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


def connect(path: Path, timeout: float, *, read_only: bool = False) -> sqlite3.Connection:
    """Return a connection in autocommit mode to a database that is there, for one thread at a time.

    Args:
        path: The database.
        timeout: Seconds to wait for a lock.
        read_only: Whether nothing is to be written.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    uri = _uri(path, "ro" if read_only else "rw")
    return sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True, check_same_thread=False)


def connect_for_pony(path: Path, timeout: float) -> sqlite3.Connection:
    """Return a connection as `connect` does, with the SQL functions that Pony's queries need."""
    from pony.orm.dbproviders.sqlite import SQLitePool  # noqa: PLC0415 - only stores with entities need Pony

    maker = SQLitePool(False, _uri(path, "rw"), True, timeout=timeout, check_same_thread=False, uri=True)
    maker._connect()  # noqa: SLF001 - there is no public way to a connection with Pony's functions
    connection: sqlite3.Connection = maker.con
    return connection


def scratch() -> sqlite3.Connection:
    """Return a connection to an empty database of its own, which is gone with it, also when the process is killed."""
    return sqlite3.connect("", isolation_level=None, check_same_thread=False)


def copy_into(path: Path, target: sqlite3.Connection) -> None:
    """Copy a database as it is at one moment over another.

    Args:
        path: The database, which others may read and write meanwhile.
        target: A connection to the other one.

    Raises:
        sqlite3.Error: Reading or writing failed.
    """
    with closing(connect(path, 30, read_only=True)) as source:
        source.backup(target)


def copy(path: Path, target: Path) -> None:
    """Copy a database as it is at one moment to a single private file, which lasts when this returns.

    Args:
        path: The database, which others may read and write meanwhile.
        target: The file, which is not there yet.

    Raises:
        sqlite3.Error: Reading or writing failed; part of the file may be there.
        OSError: Likewise.
    """
    make(target)
    with closing(connect(target, 30)) as written:
        copy_into(path, written)
        # In WAL mode it would not stay a single file.
        written.execute("PRAGMA journal_mode = DELETE")
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)  # nobody has the copy open, and no lock is lost
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"
