"""A plugin with a store in several versions, and its hosts, which are quick to start and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from tests.host.packages import plugin_entry, remove_package, write_package
from tests.integration.kit import PATIENCE, write_settings
from tests.waiting import wait_until

from plughost._api.errors import NotRunning
from plughost._plugins.environment import Environment
from plughost._runtime.control import send_command

BREAKING: Final = 3
"""Each third migration renames a column, and says that older code can't live with that; the others add one."""

_SOURCE: Final = """
from pathlib import Path

from pony.orm import PrimaryKey, Required

from plughost import Operation, Route, RouteGroup, Store, hookimpl


def entities(db):
    class Note(db.Entity):
        _table_ = "notes"
        id = PrimaryKey(int, size=64, auto=True)
        text = Required(str, 500, column="{column}")

    return db


STORE = Store(
    name="notes",
    entities=entities,
    migrations=Path(__file__).parent / "migrations",
    tables=("notes",),
    breaking={breaking},
)


def _add(db, text):
    note = db.Note(text=text)
    db.flush()
    return note.id


def _all(db):
    return [row[0] for row in db.select("SELECT {column}, id FROM notes ORDER BY id")]


class Notes:
    def __init__(self, store):
        self._store = store

    def on_get(self, req, resp):
        resp.media = self._store.read(_all)

    def on_post(self, req, resp):
        self._store.run(_add, req.get_media()["text"])
        resp.status = 201
        resp.media = {{}}


@hookimpl
def register_stores(context):
    return [STORE]


@hookimpl
def register_routes(context):
    operations = {{"GET": Operation(summary="List"), "POST": Operation(summary="Add")}}
    return [RouteGroup(prefix="/notes", routes=(Route("", Notes(context.stores["notes"]), operations),))]
"""
_BROKEN: Final = """

@hookimpl
def register_checks(context):
    raise RuntimeError("broken on purpose")
"""


@dataclass(frozen=True)
class Version:
    """A version of the plugin.

    Attributes:
        schema: How many migrations it knows.
        build: Tells versions of one schema apart.
        broken: Whether a hook of it raises.
        bad_sql: Whether its last migration can't be applied.
    """

    schema: int
    build: int = 0
    broken: bool = False
    bad_sql: bool = False

    @property
    def good(self) -> bool:
        """Whether it can serve on a store that is no newer."""
        return not (self.broken or self.bad_sql)

    def install(self, folder: Path) -> None:
        """Install it into a folder, in place of another version."""
        files = {"plughost_notes/__init__.py": "", "plughost_notes/plugin.py": self._source()}
        for engine, key in (("sqlite", "INTEGER PRIMARY KEY AUTOINCREMENT"), ("postgresql", "BIGSERIAL PRIMARY KEY")):
            for number in range(1, self.schema + 1):
                sql = "SELECT nonsense" if self.bad_sql and number == self.schema else _migration(number, key)
                files[f"plughost_notes/migrations/{engine}/{number:04d}_step.sql"] = f"{sql};\n"
        version = f"{self.schema}.{self.build}.{int(self.broken)}.{int(self.bad_sql)}"
        entry = plugin_entry("notes", "plughost_notes.plugin")
        write_package(folder, "plughost-notes", files, version=version, entry_points=entry)

    def _source(self) -> str:
        breaking = tuple(range(BREAKING, self.schema + 1, BREAKING))
        return _SOURCE.format(column=_column(self.schema), breaking=breaking) + (_BROKEN if self.broken else "")


def _column(schema: int) -> str:
    return f"text_{schema // BREAKING}"


def _migration(number: int, key: str) -> str:
    if number == 1:
        return f"CREATE TABLE notes (id {key}, {_column(1)} VARCHAR(500) NOT NULL)"
    if number % BREAKING == 0:
        return f"ALTER TABLE notes RENAME COLUMN {_column(number - 1)} TO {_column(number)}"
    return f"ALTER TABLE notes ADD COLUMN more_{number} INTEGER NOT NULL DEFAULT 0"


class HostRunner:
    """A host on a folder that is started and killed, and the commands beside it; no plugin but notes and health serves.

    Attributes:
        folder: Where its settings and data are.
        packages: Where the plugin is installed.
        output: What it and the commands have written.
        process: The host's process; None while none runs.
    """

    def __init__(self, folder: Path, zygote: subprocess.Popen[str], settings: Mapping[str, Any], server: str) -> None:
        """Store the folders; no host runs yet."""
        self.folder, self.packages, self.output = folder, folder / "packages", folder / "output.txt"
        self.process: int | None = None
        self._zygote, self._telling = zygote, threading.Lock()
        self._url = ""
        others = [each.name for each in Environment().plugins if each.name not in {"notes", "health"}]
        sites = {"main": {"listeners": ["http"], "http_engine": server}}
        write_settings(folder, {"disabled": others, "sites": sites, "grace_time": 5, **settings})

    def start(self) -> None:
        """Start the host, and wait until it serves."""
        self.process = self._tell(start=["serve"])

        def serves() -> bool:
            assert self.process is not None
            os.kill(self.process, 0)
            with suppress(NotRunning):
                return bool(self.ask("status")["phase"] == "serving")
            return False

        wait_until(serves)
        self._url = f"http://127.0.0.1:{self.ask('status')['listeners'][0]['port']}"

    def kill(self) -> None:
        """Kill the host with kill -9."""
        process, self.process = self.process, None
        if process is not None:
            os.kill(process, signal.SIGKILL)
            assert self._tell(wait=process) == -signal.SIGKILL, self.output.read_text()

    def ask(self, command: str, **arguments: Any) -> Any:
        """Send the host a command; raise NotRunning if no host runs."""
        return send_command(self.folder / "data", command, **arguments)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command of plughost, and return its exit code and output."""
        before = self.output.stat().st_size if self.output.exists() else 0
        process = self._tell(start=[*arguments])
        code = self._tell(wait=process)
        return code, self.output.read_text()[before:]

    def uninstall(self) -> None:
        """Remove the plugin."""
        remove_package(self.packages, "plughost-notes")

    def client(self) -> httpx.Client:
        """Return a client of the running host."""
        return httpx.Client(base_url=self._url, trust_env=False, timeout=PATIENCE)

    def state(self) -> tuple[str | None, str]:
        """Return the plugin's state, None if the host doesn't know it, and the reason."""
        found = [each for each in self.ask("status")["plugins"] if each["name"] == "notes"]
        return (found[0]["state"], found[0]["reason"] or "") if found else (None, "")

    def notes(self) -> list[str]:
        """Return all notes as the host lists them."""
        with self.client() as client:
            answer = client.get("/notes")
            assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
            listed: list[str] = answer.json()
        return listed

    def _tell(self, **asked: Any) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        with self._telling:
            self._zygote.stdin.write(json.dumps({"folder": str(self.folder), **asked}) + "\n")
            self._zygote.stdin.flush()
            return int(self._zygote.stdout.readline())


@contextmanager
def zygote(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that forks hosts, whose plugins are in `folder/packages`."""
    (folder / "packages").mkdir()
    command = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
    environment = {**os.environ, "PYTHONPATH": str(folder / "packages")}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
    )
    with process:
        yield process


@contextmanager
def host_runner(folder: Path, settings: Mapping[str, Any], server: str = "waitress") -> Iterator[HostRunner]:
    """Return a host that does not run yet; it is killed at the end.

    Args:
        folder: Where its settings, its data and the plugin are.
        settings: Further settings.
        server: The engine of its listener.
    """
    with zygote(folder) as process:
        made = HostRunner(folder, process, settings, server)
        try:
            yield made
        finally:
            made.kill()
