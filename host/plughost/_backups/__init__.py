"""Backups of stores: a copy of the file on SQLite, what pg_dump makes on PostgreSQL; and when each was made last."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plughost._backups.postgresql import dump, load
from plughost._files import locked_folder, sync, write_private
from plughost.stores import _sqlite_files
from plughost.stores._errors import Damaged, SetupError, StoreError, one_line, translate
from plughost.stores._migrations import refuse_newer
from plughost.stores._sqlite import SQLite, SQLiteAdminSession

if TYPE_CHECKING:
    from plughost.stores._store import OpenStore

_JOURNAL: Final = "backups.json"


def backup(store: OpenStore[Any], file: Path) -> None:
    """Copy a store as it is at one moment, also while a host serves it; one on PostgreSQL by pg_dump.

    Args:
        store: A prepared or open store.
        file: Where to; a single file with mode 0600, which is there as a whole or not at all.

    Raises:
        SetupError: There is nothing to copy yet, the file is there already, or pg_dump is not installed.
        StoreError: Reading or writing failed; the file is not there.
    """
    database = store.database
    if not database.exists():
        raise SetupError(f"the store {store.name} has nothing to back up yet: {database.config.place} is not there")
    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        if file.exists():
            raise SetupError(f"{file} is there already: choose another name, or move it away")
        unfinished.unlink(missing_ok=True)
        if isinstance(database, SQLite):
            _copy(database.path, unfinished)
        else:
            dump(store, unfinished)
        unfinished.rename(file)
        _keep_name(file)
    except (sqlite3.Error, OSError) as error:
        raise _told(error, f"the backup of the store {store.name} to {file} failed") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _copy(path: Path, target: Path) -> None:
    """Copy a database as it is at one moment to a single new private file, which lasts when this returns."""
    _sqlite_files.create(target)
    with closing(_sqlite_files.connect(target, 30)) as written:
        _sqlite_files.copy_into(path, written)
        written.execute("PRAGMA journal_mode = DELETE")  # in WAL mode it would not stay a single file
        found = written.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":  # no restore would take it
            raise Damaged(f"{path} is damaged, so nothing was copied: {one_line(found)}")
    sync(target)  # nobody has it open, so that closing it loses no lock


def restore(store: OpenStore[Any], file: Path) -> int:
    """Put a backup in the place of all that a store holds.

    The backup is looked through first. It replaces the data in one transaction: whatever happens, the store holds
    the old data or the new.

    Args:
        store: A prepared store.
        file: What `backup` wrote.

    Returns:
        The number of the schema that was restored. The next start of a host migrates it to the newest.

    Raises:
        Busy: A host serves the store, or another process has its file locked.
        SetupError: The file is damaged, or no backup of this store; or PostgreSQL's tools are not installed.
        MigrationError: The backup's schema is newer than what the installed plugin knows.
        StoreError: Reading or writing failed; the store is as it was.
    """
    database = store.database
    if not file.is_file():
        raise SetupError(f"there is no file {file}")
    if not isinstance(database, SQLite):
        return load(store, file)
    with database.exclusive_claim():
        try:
            with closing(_sqlite_files.connect(file, 30, mode="ro")) as source:
                schema = _look_through(store, source, file)
                _put(source, database, file)
        except sqlite3.Error as error:
            raise _told(error, f"{file} cannot be restored to the store {store.name}") from error
        return schema


def _put(source: sqlite3.Connection, database: SQLite, file: Path) -> None:
    """Put a backup in the place of what a store's file holds, or of the file where that is damaged."""
    try:
        target = database.connect()
    except Damaged:
        _replace(database.path, file)
        return
    with closing(target):
        _sqlite_files.copy(source, target)


def _replace(path: Path, file: Path) -> None:
    fresh = path.with_name(f".{path.name}.restored")
    try:
        fresh.unlink(missing_ok=True)
        _copy(file, fresh)
        for end in ("-wal", "-shm", "-journal"):  # SQLite would apply them to any file of this name
            path.with_name(path.name + end).unlink(missing_ok=True)
        fresh.replace(path)
        _keep_name(path)
    except OSError as error:
        raise _told(error, f"{file} cannot be put in the place of {path}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _keep_name(file: Path) -> None:
    with suppress(OSError):  # on a file system that can't do this the file is there, too
        sync(file.parent)


def _look_through(store: OpenStore[Any], source: sqlite3.Connection, file: Path) -> int:
    found = source.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise SetupError(f"{file} is damaged: {one_line(found)}")
    schema = SQLiteAdminSession(source, store.name).schema_number()
    if schema == 0:
        raise SetupError(f"{file} is no backup of the store {store.name}")
    refuse_newer(store.declared, len(store.migrations), schema)
    return schema


def _told(error: Exception, what: str) -> StoreError:
    found = translate(error, what) or StoreError(f"{what}: {error}")
    return SetupError(str(found)) if isinstance(found, Damaged) else found


def note_backup(data_dir: Path, store: str) -> None:
    """Note that a store was backed up now, as far as the data folder can be written."""
    with suppress(OSError), locked_folder(data_dir):
        noted = {name: when.isoformat() for name, when in last_backups(data_dir).items()}
        write_private(data_dir / _JOURNAL, json.dumps({**noted, store: datetime.now(UTC).isoformat()}).encode())


def last_backups(data_dir: Path) -> dict[str, datetime]:
    """Return when each store was backed up last, by store name. What can't be read counts as no backup."""
    try:
        noted = json.loads((data_dir / _JOURNAL).read_text(encoding="utf-8"))
        return {str(name): datetime.fromisoformat(when) for name, when in noted.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
