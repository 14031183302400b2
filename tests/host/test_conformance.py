"""The conformance suite detects planted faults, and says how to correct them."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.host.packages import plugin_entry, speaker_source, write_package

from plughost.testing import Tokens, _lifecycle, running_host
from plughost.testing._operations import operation_calls

if TYPE_CHECKING:
    from collections.abc import Callable


THREAD = """

import threading

let_go = threading.Event()


@hookimpl
def started(context):
    threading.Thread(target=let_go.wait, args=[60], name="forgotten", daemon=True).start()
"""
FILE = """

opened = []


@hookimpl
def started(context):
    opened.append(open(__file__))
"""
CONNECTION = """

import socket

opened = []


@hookimpl
def started(context):
    opened.extend(socket.socketpair())
"""
WRITTEN = """

import pathlib


@hookimpl
def started(context):
    pathlib.Path("notes.txt").touch()
"""
TEMPORARY = """

import tempfile


@hookimpl
def started(context):
    tempfile.mkdtemp(prefix="notes-")
"""
HELD = """

import sys
import plughost

plughost.planted = sys.modules[__name__]
"""
PATH = """

import sys

sys.path.append("/planted")
"""
STREAM = """
import threading

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import EventChannel, send_events

let_go = threading.Event()
channel = EventChannel()


class Events:
    def on_get(self, req, resp):
        {answer}


def endless():
    while not let_go.wait(0.01):
        yield b": waiting\\n\\n"


@hookimpl
def register_routes(context):
    events = Operation(summary="Tell", produces=("text/event-stream",))
    return [RouteGroup(prefix="/events", routes=(Route("", Events(), {{"GET": events}}),))]
"""
SENT = "send_events(resp, channel)"
CLOSED = "if 'HTTP_X_IN' not in req.env:\n            resp.status = 403\n            return\n        "
ENDLESS = "resp.content_type, resp.stream = 'text/event-stream', endless()"
TABLES = """
import pathlib

from plughost import Store, hookimpl


@hookimpl
def register_stores(context):
    return [Store(name="planted", migrations=pathlib.Path(__file__).parent / "migrations", tables={tables})]
"""
UNDOCUMENTED = """
from plughost import Operation, Parameter, Response, Route, RouteGroup, hookimpl


class Says:
    def on_get(self, req, resp):
        resp.media = {}


@hookimpl
def register_routes(context):
    get = Operation(
        summary="",
        parameters=(Parameter(name="a", place="query", description=""),),
        responses={200: Response(description="")},
    )
    more = Operation(summary="More")
    return [RouteGroup(prefix="/says", routes=(Route("", Says(), {"GET": get}), Route("/more", Says(), {"GET": more})))]
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for things that these plugins never clean up."""
    monkeypatch.setattr(_lifecycle, "_TIMEOUT", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_never_ends_is_found(plant: Callable[..., Any]) -> None:
    """The failure names the thread and the hook that should end it."""
    with pytest.raises(
        AssertionError, match=r"leaves the threads \[.*'forgotten'.*\] behind .*: end them in `stopping`"
    ):
        plant(
            "planted-leak", speaker_source("1", "/leak") + THREAD
        ).test_it_serves_on_after_a_reload_and_leaves_no_thread()
    importlib.import_module("planted_leak").let_go.set()


LEFT: Final = {
    "planted-file": (FILE, r"leaves .*planted_file/__init__\.py.* open .*: close it in `stopping`"),
    "planted-connection": (CONNECTION, r"leaves .*socket:\[\d+\], socket:\[\d+\].* open"),
    "planted-written": (WRITTEN, r"leaves working/notes.txt behind: write into `context.data_dir`"),
    "planted-temporary": (TEMPORARY, r"leaves temporary/notes-\w+.* behind: write into"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", LEFT)
def test_a_file_or_connection_left_behind_is_found(
    plant: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The failure names it and says what to do."""
    source, found = LEFT[name]
    with pytest.raises(AssertionError, match=found):
        plant(name, speaker_source("1", "/leak") + source).test_it_leaves_no_file_and_no_connection(
            tmp_path, monkeypatch
        )
    for each in getattr(importlib.import_module(name.replace("-", "_")), "opened", ()):
        each.close()


def test_a_plugin_that_leaves_nothing_behind_passes(
    plant: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite finds no thread, file or module of it."""
    suite = plant("planted-clean", speaker_source("1", "/clean"))
    suite.test_it_serves_on_after_a_reload_and_leaves_no_thread()
    suite.test_it_leaves_no_file_and_no_connection(tmp_path, monkeypatch)
    suite.test_its_modules_can_be_replaced()


HELD_ON: Final = {
    "planted-held": (HELD, "leaves the modules planted_held held after an upgrade: undo it in `stopping`"),
    "planted-path": (PATH, "leaves /planted in sys.path"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", HELD_ON)
def test_a_module_that_stays_referenced_is_found(
    plant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An upgrade would leave the earlier code in memory, and two versions of it in use."""
    source, found = HELD_ON[name]
    monkeypatch.setattr("plughost.planted", None, raising=False)
    with pytest.raises(AssertionError, match=found):
        plant(name, speaker_source("1", "/held") + source).test_its_modules_can_be_replaced()


def test_a_stream_that_ignores_the_drain_is_found(plant: Callable[..., Any]) -> None:
    """The failure names it and what ends it; a stream of an event channel passes."""
    plant("planted-sent", STREAM.format(answer=SENT)).test_its_event_streams_end_when_the_drain_begins()
    suite = plant("planted-endless", STREAM.format(answer=ENDLESS), {"grace_time": 0.1})
    with pytest.raises(AssertionError, match=r"GET /events don't end when the host drains: send them with"):
        suite.test_its_event_streams_end_when_the_drain_begins()
    importlib.import_module("planted_endless").let_go.set()


def test_prepared_clients_reach_protected_operations(plant: Callable[..., Any]) -> None:
    """A `prepare` function lets the suite see operations that other clients can't reach."""
    source, settings = STREAM.format(answer=CLOSED + ENDLESS), {"grace_time": 0.1}
    plant("planted-closed", source, settings).test_its_event_streams_end_when_the_drain_begins()

    def enter(_: object, client: Any) -> None:
        client.headers["X-In"] = "yes"

    with pytest.raises(AssertionError, match="GET /events don't end when the host drains"):
        plant("planted-closed", source, settings, prepare=enter).test_its_event_streams_end_when_the_drain_begins()
    importlib.import_module("planted_closed").let_go.set()


def test_an_authenticator_beside_the_plugin_opens_its_operations(plant: Callable[..., Any]) -> None:
    """A plugin with roles requires no authenticator of its own for the suite to see more than refusals."""
    source = STREAM.format(answer=ENDLESS).replace("Operation(", "Operation(security=('bearer',), roles=('reader',), ")
    tokens = Tokens()

    def enter(_: object, client: Any) -> None:
        client.headers.update(tokens.headers("reader"))

    suite = plant("planted-roles", source, {"grace_time": 0.1}, prepare=enter, beside=[tokens.distribution])
    with pytest.raises(AssertionError, match="GET /events don't end when the host drains"):
        suite.test_its_event_streams_end_when_the_drain_begins()
    importlib.import_module("planted_roles").let_go.set()


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, 1024 * 1024),
        ({"body_limit": 2 * 1024 * 1024}, 2 * 1024 * 1024),
        ({"body_limit": 5, "plugins": {"planted-limits": {"body_limit": 4096}}}, 4096),
    ],
)
def test_bodies_are_as_large_as_the_settings_allow(
    plant: Callable[..., Any], settings: dict[str, Any], limit: int
) -> None:
    """Else a plugin that needs a larger limit would fail where a body one byte larger is refused."""
    plant("planted-limits", speaker_source("1", "/limits"))
    with running_host(["planted-limits"], settings=settings) as host:
        assert {call.body_limit for call in operation_calls(host, "planted-limits")} == {limit}


def test_a_package_without_types_is_found(plant: Callable[..., Any]) -> None:
    """The failure names the missing file."""
    with pytest.raises(AssertionError, match=r"planted_bare has no file py\.typed: add an empty one"):
        plant("planted-bare", speaker_source("1", "/bare")).test_it_says_that_it_is_typed()
    plant("planted-typed", speaker_source("1", "/bare"), **{"py.typed": ""}).test_it_says_that_it_is_typed()


def test_an_operation_that_is_not_documented_is_found(plant: Callable[..., Any]) -> None:
    """The failure names everything that is missing."""
    suite = plant("planted-silent", UNDOCUMENTED)
    with running_host(["planted-silent"]) as host, pytest.raises(AssertionError) as found:
        suite.test_every_operation_is_documented(host)
    for part in (
        "GET /says has no summary: say",
        "GET /says doesn't say what its parameter a is: give it a description",
        "GET /says doesn't say what its response 200 means",
        "GET /says doesn't say what is in its response 200: give it a model",
        "GET /says/more doesn't say what it answers: declare the response",
    ):
        assert part in str(found.value)


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ('("notes",)', "the store planted makes the table strays, which it doesn't declare: add it to `tables`"),
        ('("notes", "strays", "more")', "the store planted declares the table more, which it doesn't make: remove it"),
        ('("notes", "strays")', None),
    ],
)
def test_tables_that_differ_from_the_declaration_are_found(
    plant: Callable[..., Any], tables: str, found: str | None
) -> None:
    """A purge would leave an undeclared table; a declared table that doesn't exist is found as well."""
    migration = {
        "migrations/sqlite/0001_notes.sql": "CREATE TABLE notes (id INTEGER); CREATE TABLE strays (id INTEGER);"
    }
    suite = plant("planted-tables", TABLES.format(tables=tables), **migration)
    with running_host(["planted-tables"], settings={"stores": {}}) as host:
        if found is None:
            suite.test_it_declares_the_tables_that_it_makes(host)
        else:
            with pytest.raises(AssertionError, match=found):
                suite.test_it_declares_the_tables_that_it_makes(host)


def test_an_index_of_sqlite_for_full_text_is_no_undeclared_table(plant: Callable[..., Any]) -> None:
    """PostgreSQL has no such tables, so a store can't declare them; a purge removes them with SQLite's file."""
    migrations = {
        "sqlite": "CREATE TABLE notes (id INTEGER); CREATE VIRTUAL TABLE words USING fts5(text, content='');",
        "postgresql": "CREATE TABLE notes (id INTEGER);",
    }
    files = {f"migrations/{dialect}/0001_notes.sql": text for dialect, text in migrations.items()}
    suite = plant("planted-words", TABLES.format(tables='("notes",)'), **files)
    with running_host(["planted-words"], settings={"stores": {}}) as host:
        suite.test_it_declares_the_tables_that_it_makes(host)


KEEPS = """
import pathlib

from pydantic import BaseModel

from plughost import Operation, Route, RouteGroup, Store, hookimpl
from plughost.stores import Session

STORE = Store(name="notes", migrations=pathlib.Path(__file__).parent / "migrations", tables=("notes",))


class Note(BaseModel):
    text: str


class Notes:
    def __init__(self, store):
        self.store = store

    def on_get(self, req, resp):
        resp.media = self.store.read(Session.rows, "SELECT {columns} FROM notes")

    def on_post(self, req, resp):
        self.store.single(Session.change, "INSERT INTO notes (id, text) VALUES (1, 'tea')")


@hookimpl
def register_stores(context):
    return [STORE]


@hookimpl
def register_routes(context):
    add = Operation(summary="Add", request=Note, examples={{"a note": {{"text": "tea"}}}})
    notes = Notes(context.store(STORE))
    return [RouteGroup(prefix="/notes", routes=(Route("", notes, {{"GET": Operation(summary="List"), "POST": add}}),))]
"""
FIRST: Final = "CREATE TABLE notes (id INTEGER, text TEXT);"
UPGRADES: Final = {
    "planted-good": ("id, mood", "ALTER TABLE notes ADD COLUMN mood TEXT NOT NULL DEFAULT 'good';", None),
    "planted-bad": (
        "id, mood",
        "ALTER TABLE notes ADD COLUMN mood TEXT NOT NULL;",
        "the reload fails: .*0002",
    ),
    "planted-worse": ("id, text", "ALTER TABLE notes DROP COLUMN text;", "after the reload GET /notes answers 50"),
}


@pytest.mark.parametrize("name", UPGRADES)
@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_an_upgrade_that_loses_data_is_found(
    tmp_path: Path, plant: Callable[..., Any], name: str, dialect: str
) -> None:
    """The failure names a migration that fails on existing rows, or an operation that fails later."""
    columns, step, found = UPGRADES[name]
    module = name.replace("-", "_")
    first = {f"migrations/{each}/0001_notes.sql": FIRST for each in ("sqlite", "postgresql")}
    files = {f"{module}/__init__.py": KEEPS.format(columns="id, text")} | {f"{module}/{k}": v for k, v in first.items()}
    write_package(tmp_path / "earlier", name, files, entry_points=plugin_entry(name, module))
    wheel = Path(shutil.make_archive(str(tmp_path / "earlier-1.0"), "zip", tmp_path / "earlier"))
    second = {f"migrations/{each}/0002_more.sql": step for each in ("sqlite", "postgresql")}
    suite = plant(name, KEEPS.format(columns=columns), version="2.0", earlier=wheel, **first, **second)
    if found is None:
        suite.test_it_takes_over_from_an_earlier_version(dialect, tmp_path)
    else:
        with pytest.raises(AssertionError, match=f"(?s){name} can't take over from earlier-1.0.zip: {found}"):
            suite.test_it_takes_over_from_an_earlier_version(dialect, tmp_path)
