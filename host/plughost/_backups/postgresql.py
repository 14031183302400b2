"""Backups of PostgreSQL stores by PostgreSQL's own tools. If these are missing, the error shows the commands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plughost.stores._errors import SetupError, StoreError
from plughost.stores._migrations import CREATE_TABLE, refuse_newer
from plughost.stores._postgresql import driver_for
from plughost.stores._sessions import TABLE, quote

if TYPE_CHECKING:
    from plughost.stores._databases import Database
    from plughost.stores._store import OpenStore

_COLUMNS: Final = 5
_PLACE: Final = """
SELECT coalesce(
    (SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE pg_class.oid = to_regclass(?)),
    current_schema())
"""


def dump(store: OpenStore[Any], file: Path, final: Path) -> None:
    """Copy a store's tables, and the table of migrations, to a file for pg_restore; raises as `backup`.

    The file is renamed to `final` afterwards, so without pg_dump the message has a command that writes that one.
    """
    tables = [f"--table={quote(each)}" for each in (*store.declared.tables, TABLE)]
    options = ["--format=custom", "--no-owner", *tables]
    _require_tool("pg_dump", [*options, f"--file={final}"], store.database)
    file.touch(mode=0o600, exist_ok=False)
    _run("pg_dump", [*options, f"--file={file}"], store.database)


def load(store: OpenStore[Any], file: Path) -> int:
    """Replace all data of a store by a file that `dump` wrote, in one transaction; returns and raises as `restore`."""
    rows = _migration_rows(store.name, file)
    schema = max((int(number) for _, number, *_ in rows), default=0)
    contents = _run("pg_restore", ["--list", str(file)]).splitlines()
    tables = {found[2]: found[1] for line in contents if (found := re.search(r" TABLE (?!DATA )(\S+) (\S+) ", line))}
    newer = [table for table in store.declared.tables if table not in tables]  # made after the backup
    if schema == 0 or (newer and (schema == len(store.migrations) or len(newer) == len(store.declared.tables))):
        raise SetupError(f"{file} is no backup of the store {store.name}")
    refuse_newer(store.declared, len(store.migrations), schema)
    _refuse_other_places(store, {table: place for table, place in tables.items() if table in store.declared.tables})
    selection = "\n".join(line for line in contents if f" {TABLE} " not in f"{line} ")
    script = "".join(f"DROP TABLE IF EXISTS {quote(table)} CASCADE;\n" for table in newer)
    arguments = ["--clean", "--if-exists", "--no-owner", "--use-list=/dev/stdin", "--file=-", str(file)]
    script += _run("pg_restore", arguments, script=selection)
    # Other stores share the table of migrations, so only this store's rows are replaced. TABLE is a constant, and all
    # values are quoted.
    script += f"\nRESET search_path;\n{CREATE_TABLE}\nDELETE FROM {TABLE} WHERE store = {_quote_literal(store.name)};\n"  # nosec B608 - quoted
    for row in rows:
        script += f"INSERT INTO {TABLE} VALUES ({', '.join(map(_quote_literal, row))});\n"  # noqa: S608 - quoted  # nosec B608 - quoted
    with store.database.turn(), store.database.exclusive_claim():
        arguments = ["--quiet", "--no-psqlrc", "--single-transaction", "--set=ON_ERROR_STOP=1", "--output=/dev/null"]
        _run("psql", arguments, store.database, script)
    return schema


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
    return [row for row in rows if len(row) == _COLUMNS and row[0] == store]


def _quote_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _require_tool(tool: str, arguments: list[str], database: Database | None) -> None:
    """Raise a `SetupError` with the command if a tool is missing."""
    if shutil.which(tool) is None:
        shown = [tool, *arguments, *([f"--dbname={database.config.place}"] if database is not None else ())]
        message = f"{tool} is not installed here. Where PostgreSQL's tools are: {shlex.join(shown)}"
        raise SetupError(message)


def _run(tool: str, arguments: list[str], database: Database | None = None, script: str | None = None) -> str:
    """Run one of PostgreSQL's tools, on a database if one is given, and return its output."""
    _require_tool(tool, arguments, database)
    environment = dict(os.environ)
    if database is not None:
        extensions = driver_for(database.store).extensions
        parts = extensions.parse_dsn(database.config.url)
        if password := parts.pop("password", None):  # not in the arguments, which every user of the machine can see
            environment["PGPASSWORD"] = password
        arguments = [*arguments, f"--dbname={extensions.make_dsn(**parts)}"]
    done = subprocess.run(  # noqa: S603 - only fixed words and names of files and tables, no shell  # nosec B603
        [tool, *arguments], input=script, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        message = f"{tool} failed: {done.stderr.strip()}"
        raise StoreError(message)
    return done.stdout
