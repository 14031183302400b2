"""A plugin that stores notes, in versions that migrate its store, installed into a folder on a host's path."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.host.packages import plugin_entry, write_package
from tests.integration.kit import HostProcess, host_process

IDENTITY = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}
NOTES = "CREATE TABLE {name} (id {identity}, text VARCHAR(100) NOT NULL);"
RENAME = "ALTER TABLE {name} RENAME COLUMN text TO content;"
ADD = "ALTER TABLE {name} ADD COLUMN stars INTEGER NOT NULL DEFAULT 0;"

_PONY = """
from pony import orm


def entities(db):
    class Note(db.Entity):
        _table_ = "{name}"
        id = orm.PrimaryKey(int, size=64, auto=True)
        {column} = orm.Required(str, 100, autostrip=False)

    return db


def add(db, text):
    note = db.Note({column}=text)
    db.flush()
    return note.id


def texts(db):
    return list(orm.select(note.{column} for note in db.Note).order_by(1))
"""
_ROWS = """
def add(session, text):
    return session.insert("INSERT INTO {name} ({column}) VALUES (?)", text)


def texts(session):
    return [text for (text,) in session.rows("SELECT {column} FROM {name} ORDER BY id")]
"""

_SOURCE = """
from importlib.resources import files

from plughost import Operation, Route, RouteGroup, Store, hookimpl
from plughost.http import read_json


{operations}

class Notes:
    def __init__(self, store):
        self.store = store

    def on_get(self, req, resp):
        resp.media = {{"version": {version!r}, "notes": self.store.read(texts)}}

    def on_post(self, req, resp):
        resp.status = 201
        resp.media = {{"version": {version!r}, "id": self.store.run(add, read_json(req)["text"])}}


@hookimpl
def register_stores(context):
    steps = files(__package__) / "steps"
    return [Store(name="{name}", {entities}migrations=steps, tables=("{name}",){declared})]


@hookimpl
def register_routes(context):
    {hook}
    operations = {{"GET": Operation(summary="List"), "POST": Operation(summary="Add")}}
    return [RouteGroup(prefix="/{name}", routes=(Route("", Notes(context.stores["{name}"]), operations),))]
"""


def install(
    folder: Path,
    version: str,
    *steps: str,
    name: str = "notes",
    column: str = "text",
    hook: str = "pass",
    declared: str = "",
    requires: Sequence[str] = (),
    pony: bool = True,
) -> None:
    """Install a version of the plugin in place of the previous one, as pip does; a host may be running.

    Args:
        folder: A folder on the host's path.
        version: What it calls itself.
        steps: Its migrations, beside the first, which makes the table.
        name: The plugin's name, and that of its store, its table and its prefix.
        column: The column that its code uses.
        hook: A statement at the beginning of its `register_routes`.
        declared: Further arguments of its `Store`.
        requires: Distributions that it requires.
        pony: Whether its store has entities; else it uses SQL, and its declaration is the same in every version.
    """
    package = f"keeping_{name}"
    operations = (_PONY if pony else _ROWS).format(name=name, column=column)
    entities = "entities=entities, " if pony else ""
    source = _SOURCE.format(
        name=name, version=version, hook=hook, declared=declared, operations=operations, entities=entities
    )
    files = {f"{package}/__init__.py": source}
    for engine, identity in IDENTITY.items():
        for number, step in enumerate((NOTES, *steps), start=1):
            path = f"{package}/steps/{engine}/{number:04}_step.sql"
            files[path] = step.replace("{identity}", identity).replace("{name}", name)
    points = plugin_entry(name, package)
    write_package(folder, f"plughost-{name}", files, version=version, entry_points=points, requires=requires)


@contextmanager
def notes_host(folder: Path, packages: Path, settings: Mapping[str, Any] | None = None) -> Iterator[HostProcess]:
    """Run a host in its own process, with additional packages on its path."""
    http = {"listeners": ["http"]}
    table = {"sites": {"main": http, "library": http}, **(settings or {})}
    with host_process(folder, table, environment={"PYTHONPATH": str(packages)}) as running:
        yield running


def plughost_command(folder: Path, packages: Path, *arguments: str, code: int = 0) -> str:
    """Run `plughost` in its own process, and return its output."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from plughost._cli import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(packages), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, f"it ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def create(host: HostProcess, number: int, path: str = "/notes") -> set[str]:
    """Add notes, and return those that were acknowledged."""
    texts = [secrets.token_hex(8) for _ in range(number)]
    with host.client() as client:
        return {text for text in texts if client.post(path, json={"text": text}).status_code == 201}


def list_notes(host: HostProcess, path: str = "/notes") -> tuple[str, set[str]]:
    """Return the version that answers, and the existing notes."""
    with host.client() as client:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()["version"], set(answer.json()["notes"])


def store_files(folder: Path) -> set[str]:
    """Return the names of a host's store files, without the ones that SQLite adds while it uses them."""
    return {each.name for each in (folder / "data" / "stores").glob("*") if not each.name.endswith(("-shm", "-wal"))}
