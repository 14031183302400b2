"""Backups of PostgreSQL stores, by PostgreSQL's own tools where they are installed, else by commands to copy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plughost._queries import quote
from plughost.stores._databases import TABLE
from plughost.stores._errors import SetupError, StoreError
from plughost.stores._migrations import CREATE_TABLE, refuse_newer
from plughost.stores._postgresql import driver_for

if TYPE_CHECKING:
    from plughost.stores._databases import Database
    from plughost.stores._store import OpenStore

_COLUMNS: Final = 5


def dump(store: OpenStore[Any], file: Path) -> None:
    """Copy a store's tables, and the record of migrations, to a file that pg_restore reads, with mode 0600.

    Raises:
        SetupError: pg_dump is not installed; the message has the command.
        StoreError: It failed, and says why.
    """
    tables = [f"--table={quote(each)}" for each in (*store.declared.tables, TABLE)]
    file.touch(mode=0o600, exist_ok=False)
    _run("pg_dump", ["--format=custom", "--no-owner", *tables, f"--file={file}"], store.database)


def load(store: OpenStore[Any], file: Path) -> int:
    """Put what `dump` wrote in the place of all that a store holds, in one transaction; no host may serve it.

    Returns:
        The number of the schema that was restored.

    Raises:
        SetupError: The tools are not installed, and the message has the commands; or it is no backup of this store.
        MigrationError: The backup's schema is newer than what the installed plugin knows.
        StoreError: It failed, and says why; the store is as it was.
    """
    steps = _steps(store.name, file)
    schema = max((int(number) for _, number, *_ in steps), default=0)
    contents = _run("pg_restore", ["--list", str(file)]).splitlines()
    held = {found[1] for line in contents if (found := re.search(r" TABLE \S+ (\S+) ", line))}
    later = [table for table in store.declared.tables if table not in held]  # than the backup
    if schema == 0 or (later and (schema == len(store.migrations) or len(later) == len(store.declared.tables))):
        raise SetupError(f"{file} is no backup of the store {store.name}")
    refuse_newer(store.declared, len(store.migrations), schema)
    chosen = "\n".join(line for line in contents if f" {TABLE} " not in f"{line} ")
    script = "".join(f"DROP TABLE IF EXISTS {quote(table)} CASCADE;\n" for table in later)
    arguments = ["--clean", "--if-exists", "--no-owner", "--use-list=/dev/stdin", "--file=-", str(file)]
    script += _run("pg_restore", arguments, entered=chosen)
    # The record of migrations is shared with other stores, so only the rows of this one are put in.
    # Table is our own name, and what stands beside it is quoted.
    script += f"\nRESET search_path;\n{CREATE_TABLE}\nDELETE FROM {TABLE} WHERE store = {_literal(store.name)};\n"  # nosec B608 - no text of a user's
    for step in steps:
        script += f"INSERT INTO {TABLE} VALUES ({', '.join(map(_literal, step))});\n"  # noqa: S608 - quoted  # nosec B608 - quoted
    with store.database.exclusive_claim():
        arguments = ["--quiet", "--no-psqlrc", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
        _run("psql", arguments, store.database, script)
    return schema


def _steps(store: str, file: Path) -> list[list[str]]:
    """Return the rows of a backup's record of migrations that are a store's."""
    data = _run("pg_restore", ["--data-only", f"--table={TABLE}", "--file=-", str(file)])
    rows = (line.split("\t") for line in data.splitlines())
    return [row for row in rows if len(row) == _COLUMNS and row[0] == store]


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _run(tool: str, arguments: list[str], database: Database | None = None, entered: str | None = None) -> str:
    """Run one of PostgreSQL's tools, on a database where one is given, and return what it prints."""
    environment = dict(os.environ)
    given = arguments
    if database is not None:
        extensions = driver_for(database.store).extensions
        parts = extensions.parse_dsn(database.config.url)
        if password := parts.pop("password", None):  # every user of the machine can see the arguments
            environment["PGPASSWORD"] = password
        arguments = [*arguments, f"--dbname={extensions.make_dsn(**parts)}"]
    if shutil.which(tool) is None:
        place = [f"--dbname={database.config.place}"] if database is not None else []
        message = f"{tool} is not installed here. Where PostgreSQL's tools are: {shlex.join([tool, *given, *place])}"
        raise SetupError(message)
    done = subprocess.run(  # noqa: S603 - no words but ours and the names of files and tables, and no shell  # nosec B603
        [tool, *arguments], input=entered, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        message = f"{tool} failed: {done.stderr.strip()}"
        raise StoreError(message)
    return done.stdout
