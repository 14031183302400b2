"""Backups of stores: a copy of the file for SQLite, pg_dump's output for PostgreSQL.

Where pg_dump is missing, the error shows its command. It is recorded when each backup was made.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from plughost._files import locked_folder, remove_leftovers, sync, temporary_name, write_private
from plughost.stores import _sqlite_files
from plughost.stores._errors import Damaged, SetupError, StoreError, one_line, translate
from plughost.stores._migrations import COMMENT, CREATE_TABLE, refuse_newer
from plughost.stores._postgresql import driver_for
from plughost.stores._sessions import TABLE, quote
from plughost.stores._sqlite import SQLite, SQLiteAdminSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from plughost.stores._databases import Database
    from plughost.stores._store import OpenStore

_RECORDS: Final = "backups.json"
_SIGNATURES: Final = {"SQLite": b"SQLite format 3\0", "PostgreSQL": b"PGDMP"}
_MIGRATION_COLUMNS: Final = 5
_LOCK_SECONDS: Final = 60  # to wait for those who use a table on PostgreSQL
# pg_restore sets it from 17 on, whatever the server is; older servers don't know it.
_TIMEOUT: Final = b"SET transaction_timeout = 0;"
_TIMEOUT_IF_KNOWN: Final = b"SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout';"
_NO_LOCK_TIMEOUT: Final = b"SET lock_timeout = 0;"
_TABLE: Final = re.compile("^-- Name: (.+); Type: TABLE; Schema: (.+); Owner: ", re.MULTILINE)
_PLACE: Final = """
SELECT coalesce(
    (SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE pg_class.oid = to_regclass(?)),
    current_schema())
"""


def backup(store: OpenStore[Any], file: Path) -> None:
    """Copy a consistent snapshot of a store to a new file, also while a host serves it; PostgreSQL by pg_dump.

    The file has mode 0600, and is written completely or not at all.

    Raises:
        SetupError: There is nothing to copy yet, the file exists already, or pg_dump is not installed.
        StoreError: Reading or writing failed; no file was written.
    """
    database = store.database
    if not database.exists():
        raise SetupError(f"the store {store.name} has nothing to back up yet: {database.config.place} is not there")
    unfinished = temporary_name(file.absolute())  # of its own: another backup may write to the same place
    try:
        _refuse_existing(file)
        remove_leftovers(file)
        if isinstance(database, SQLite):
            _copy(database.path, unfinished)
        else:
            dump(store, unfinished, file)
        _give_name(unfinished, file)
        _sync_folder(file)
    except (sqlite3.Error, OSError) as error:
        raise _as_store_error(error, f"the backup of the store {store.name} to {file} failed") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise SetupError(f"{file} is there already: choose another name, or move it away")


def _give_name(unfinished: Path, file: Path) -> None:
    """Give a complete backup its name, unless another backup was quicker."""
    try:
        file.hardlink_to(unfinished)  # unlike a renaming, it overwrites nothing
    except OSError:  # the name is taken, or the file system has no links
        _refuse_existing(file)
        unfinished.rename(file)


def _copy(path: Path, target: Path) -> None:
    """Copy a consistent snapshot of a database to a single new private file, and sync it to the disk."""
    _sqlite_files.create(target)
    with closing(_sqlite_files.connect(target, 30)) as written:
        with closing(_sqlite_files.connect_to_read(path)) as source:
            _sqlite_files.copy(source, written)
        written.execute("PRAGMA journal_mode = DELETE")  # WAL mode would add a second file
        found = written.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":  # such a backup could not be restored
            raise Damaged(f"{path} is damaged, so nothing was copied: {one_line(found)}")
    sync(target)  # closing a file drops the locks of its process (POSIX), but nothing else has this one open


def restore(store: OpenStore[Any], file: Path) -> int:
    """Replace all data of a store by a file that `backup` wrote, and return the number of its schema.

    The backup is verified first, and replaces the data in one transaction: whatever happens, the store holds either the
    old data or the new. The next start of a host migrates it to the newest schema.

    Raises:
        Busy: A host serves the store, or another process has locked its file.
        SetupError: The file is damaged or is not a backup of this store, or PostgreSQL's tools are not installed.
        MigrationError: The backup's schema is newer than the installed plugin's; on PostgreSQL, or the store's is.
        StoreError: Reading or writing failed; the store is as it was.
    """
    database = store.database
    if not file.is_file():
        raise SetupError(f"there is no file {file}")
    _refuse_other_dialect(store, file)
    if not isinstance(database, SQLite):
        return load(store, file)
    with database.exclusive_claim():
        try:
            with closing(_sqlite_files.connect(file, 30, mode="ro")) as source:
                schema = _verify(store, source, file)
                _replace_data(database, source, file)
        except (sqlite3.Error, OSError) as error:
            raise _as_store_error(error, f"{file} cannot be restored to the store {store.name}") from error
        return schema


def _refuse_other_dialect(store: OpenStore[Any], file: Path) -> None:
    """Raise a `SetupError` if a file is a backup of the other kind of database."""
    own, other = ("SQLite", "PostgreSQL") if isinstance(store.database, SQLite) else ("PostgreSQL", "SQLite")
    with suppress(OSError), file.open("rb") as opened:  # if it can't be read, SQLite and pg_restore say so
        if opened.read(16).startswith(_SIGNATURES[other]):
            raise SetupError(
                f"{file} is a backup of a store on {other}, and the store {store.name} is on {own}: change "
                f"stores.urls.{store.name} for it, or restore another file"
            )


def _replace_data(database: SQLite, source: sqlite3.Connection, file: Path) -> None:
    """Replace all data of a database by those of a backup, which is open as `source`, in one transaction."""
    try:
        target = database.administer()
    except Damaged:
        _replace_database(database.path, file)
        return
    with target:
        if len({each.execute("PRAGMA page_size").fetchone() for each in (source, target.connection)}) > 1:
            target.connection.execute("PRAGMA journal_mode = DELETE")  # in WAL mode, the size of pages is fixed
        _sqlite_files.copy(source, target.connection)


def _replace_database(path: Path, file: Path) -> None:
    """Replace a damaged file as a whole."""
    path = _sqlite_files.real_path(path)
    fresh = path.with_name(f".{path.name}.restored")
    try:
        fresh.unlink(missing_ok=True)
        _copy(file, fresh)
        for end in ("-wal", "-shm", "-journal"):  # SQLite would apply them to any file of this name
            path.with_name(path.name + end).unlink(missing_ok=True)
        fresh.replace(path)
        _sync_folder(path)
    finally:
        fresh.unlink(missing_ok=True)


def _sync_folder(file: Path) -> None:
    with suppress(OSError):  # some file systems can't sync a folder; the file is written all the same
        sync(file.parent)


def _verify(store: OpenStore[Any], source: sqlite3.Connection, file: Path) -> int:
    found = source.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise SetupError(f"{file} is damaged: {one_line(found)}")
    schema = SQLiteAdminSession(source, store.name).schema_number()
    if schema == 0:
        raise SetupError(f"{file} is no backup of the store {store.name}")
    refuse_newer(store.declared, len(store.migrations), schema)
    return schema


def _as_store_error(error: Exception, what: str) -> StoreError:
    found = translate(error, what) or StoreError(f"{what}: {error}")
    return SetupError(str(found)) if isinstance(found, Damaged) else found


def record_backup(data_dir: Path, store: str) -> None:
    """Record that a store was backed up now, if the data folder can be written."""
    with suppress(OSError), locked_folder(data_dir):
        recorded = {name: when.isoformat() for name, when in last_backups(data_dir).items()}
        write_private(data_dir / _RECORDS, json.dumps({**recorded, store: datetime.now(UTC).isoformat()}).encode())


def last_backups(data_dir: Path) -> dict[str, datetime]:
    """Return the time of each store's last backup, by store name. Unreadable records count as no backup."""
    try:
        recorded = json.loads((data_dir / _RECORDS).read_text(encoding="utf-8"))
        return {str(name): datetime.fromisoformat(when) for name, when in recorded.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def dump(store: OpenStore[Any], file: Path, final: Path) -> None:
    """Copy a store's tables, and the table of migrations, to a file for pg_restore; raises as `backup`.

    The file is renamed to `final` afterwards, so without pg_dump the message has a command that writes that one.
    """
    tables = [f"--table={quote(each)}" for each in (*store.declared.tables, TABLE)]
    options = ["--format=custom", "--no-owner", f"--lock-wait-timeout={_LOCK_SECONDS}s", *tables]
    if shutil.which("pg_dump") is None:
        shown = shlex.join(["pg_dump", *options, f"--file={final}", f"--dbname={store.database.config.place}"])
        raise SetupError(f"pg_dump is not installed here. Where PostgreSQL's tools are: {shown}")
    file.touch(mode=0o600, exist_ok=False)
    _run("pg_dump", [*options, f"--file={file}"], store.database)


def load(store: OpenStore[Any], file: Path) -> int:
    """Replace all data of a store by a file that `dump` wrote, in one transaction; returns and raises as `restore`."""
    for tool in ("pg_restore", "psql"):
        if shutil.which(tool) is None:
            raise SetupError(
                f"{tool} is not installed here: install PostgreSQL's client tools, or restore where they are, with "
                "these settings"
            )
    try:
        rows = _migration_rows(store.name, file)
    except StoreError as error:
        raise SetupError(f"{file} cannot be restored to the store {store.name}: {error}") from error
    schema = max((int(number) for _, number, *_ in rows), default=0)
    tables = dict(_TABLE.findall(_run("pg_restore", ["--section=pre-data", "--file=-", str(file)])))
    newer = [table for table in store.declared.tables if table not in tables]  # made after the backup
    has_none = len(newer) == len(store.declared.tables) and not _made(tables.keys() - {TABLE}, store)
    if schema == 0 or has_none or (newer and schema == len(store.migrations)):
        raise SetupError(f"{file} is no backup of the store {store.name}")
    refuse_newer(store.declared, len(store.migrations), schema)
    with store.database.administer() as db:
        todo = "install the newer version, restore, then install this one"
        refuse_newer(store.declared, len(store.migrations), db.schema_number(), todo)
    _refuse_other_places(store, {table: place for table, place in tables.items() if table in store.declared.tables})
    contents = _run("pg_restore", ["--list", str(file)]).splitlines()
    selection = "\n".join(line for line in contents if f" {TABLE} " not in f"{line} ")
    before = f"BEGIN;\n{_lock_timeout()}\n" + "".join(
        f"DROP TABLE IF EXISTS {quote(table)} CASCADE;\n" for table in newer
    )
    # Other stores share the table of migrations, so only this store's rows are replaced. TABLE is a constant, and all
    # values are quoted.
    after = f"\nRESET search_path;\n{CREATE_TABLE}\nDELETE FROM {TABLE} WHERE store = {_quote_literal(store.name)};\n"  # nosec B608 - quoted
    for row in rows:
        after += f"INSERT INTO {TABLE} VALUES ({', '.join(map(_quote_literal, row))});\n"  # noqa: S608 - quoted  # nosec B608 - quoted
    with store.database.turn(), store.database.exclusive_claim():
        _run_script(store.database, before, file, selection, after)
    return schema


def _made(tables: Iterable[str], store: OpenStore[Any]) -> bool:
    """Return whether a store's migrations make all these tables, some of which later ones may rename or drop."""
    steps = "\n".join(COMMENT.sub("", step.content) for step in store.migrations)
    made = (rf'\b(TABLE|EXISTS|TO)\s+"?{re.escape(table)}\b' for table in tables)
    return all(re.search(each, steps, re.IGNORECASE) for each in made)


def _refuse_other_places(store: OpenStore[Any], places: dict[str, str]) -> None:
    """Raise a `SetupError` if a table's PostgreSQL schema isn't the store's: pg_restore would overwrite another's."""
    with store.database.administer() as db:
        for table, place in places.items():
            own = db.rows(_PLACE, quote(table))[0][0]
            if own != place:
                raise SetupError(
                    f"the backup has the table {place}.{table}, and the store {store.name} uses {own}.{table}: restore "
                    "it over a connection with the search_path that it was made with"
                )


def _migration_rows(store: str, file: Path) -> list[list[str]]:
    """Return a store's rows in the table of migrations of a backup."""
    data = _run("pg_restore", ["--data-only", f"--table={TABLE}", "--file=-", str(file)])
    rows = (line.split("\t") for line in data.splitlines())
    return [row for row in rows if len(row) == _MIGRATION_COLUMNS and row[0] == store]


def _quote_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _run_script(database: Database, before: str, file: Path, selection: str, after: str) -> None:
    """Have psql run what pg_restore makes of the selected parts of a backup, with SQL before and after it.

    The rows may take more room than memory has, so they go from one to the other. If either fails, no COMMIT follows,
    and nothing is kept.
    """
    restoring = ["--clean", "--if-exists", "--no-owner", "--use-list=/dev/stdin", "--file=-", str(file)]
    running = ["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
    with tempfile.TemporaryFile() as listing, _tool("psql", running, database, stdin=subprocess.PIPE) as psql:
        listing.write(_encoded(selection))
        listing.seek(0)
        with suppress(BrokenPipeError), cast("IO[bytes]", psql.stdin) as script:  # psql gave up, and says why
            script.write(_encoded(before))
            with _tool("pg_restore", restoring, stdin=listing) as source:
                _copy_script(cast("IO[bytes]", source.stdout), script)
            script.write(_encoded(f"{after}COMMIT;\n"))


def _lock_timeout() -> str:
    return f"SET lock_timeout = '{_LOCK_SECONDS}s';"


def _copy_script(source: IO[bytes], target: IO[bytes]) -> None:
    """Copy what pg_restore writes, without settings that an older server doesn't know, but with limited waits."""
    for line in iter(source.readline, b""):
        target.write(line.replace(_TIMEOUT, _TIMEOUT_IF_KNOWN).replace(_NO_LOCK_TIMEOUT, _lock_timeout().encode()))
        if line.startswith(b"SET client_encoding"):  # rows, which may say the same, follow
            break
    shutil.copyfileobj(source, target)


def _run(name: str, arguments: list[str], database: Database | None = None) -> str:
    """Run one of PostgreSQL's tools, on a database if one is given, and return its output."""
    with _tool(name, arguments, database) as tool:
        return cast("IO[bytes]", tool.stdout).read().decode(errors="surrogateescape")


@contextmanager
def _tool(
    name: str, arguments: list[str], database: Database | None = None, stdin: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of PostgreSQL's tools beside a block, on a database if one is given. A failure is a `StoreError`."""
    environment = {**os.environ, "PGCLIENTENCODING": "UTF8"}  # a role or a database may have another
    if database is not None:
        extensions = driver_for(database.store).extensions
        parts = extensions.parse_dsn(database.config.url)
        if password := parts.pop("password", None):  # not in the arguments, which every user of the machine can see
            environment["PGPASSWORD"] = password
        parts.setdefault("connect_timeout", database.config.connect_timeout)
        arguments = [*arguments, f"--dbname={extensions.make_dsn(**parts)}"]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(  # noqa: S603 - only fixed words and names of files and tables, no shell  # nosec B603
            [name, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as tool:
            yield tool
        if tool.returncode != 0:
            errors.seek(0)
            raise StoreError(f"{name} failed: {errors.read().decode(errors='surrogateescape').strip()}")


def _encoded(sql: str) -> bytes:
    return sql.encode(errors="surrogateescape")  # a backup that somebody else made may have another encoding
