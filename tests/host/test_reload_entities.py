"""Reloads that replace the code of a plugin with Pony entities."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from types import CodeType

from tests.host.packages import InFolder, plugin_entry, write_package

from plughost.testing import RunningHost, running_host

MIGRATION = "CREATE TABLE things (id INTEGER PRIMARY KEY, size INTEGER NOT NULL); INSERT INTO things VALUES (1, 100);"
PLUGIN = """
from importlib.resources import files

from pony import orm
from plughost import Operation, Route, RouteGroup, Store, hookimpl


def entities(db):
    class Thing(db.Entity):
        _table_ = "things"
        size = orm.Required(int)

        @property
        def grown(self):
            return self.size + {number}

    return db


STORE = Store(name="things", migrations=files(__package__) / "migrations", tables=("things",), entities=entities)


def grown(db):
    return [*orm.select(thing.grown for thing in db.Thing), *db.Thing.select(lambda thing: thing.size > {number})]


class Grown:
    def __init__(self, store):
        self.store = store

    def on_get(self, req, resp):
        resp.media = self.store.read(lambda db: [grown(db)[0], len(grown(db))])


@hookimpl
def register_stores():
    return [STORE]


@hookimpl
def register_routes(context):
    grown = Route("", Grown(context.store(STORE)), {{"GET": Operation(summary="Grow")}})
    return [RouteGroup(prefix="/grown", routes=(grown,))]
"""


def install(folder: Path, number: int) -> None:
    """Install a version of the plugin, whose entity's property adds its number."""
    files = {
        "reloaded_things/__init__.py": "",
        "reloaded_things/plugin.py": PLUGIN.format(number=number),
        "reloaded_things/migrations/sqlite/0001_things.sql": MIGRATION,
    }
    entry = plugin_entry("things", "reloaded_things.plugin")
    write_package(folder, "reloaded-things", files, version=f"1.{number}", entry_points=entry)


def upgrade(host: RunningHost, folder: Path, number: int) -> list[weakref.ref[CodeType]]:
    """Upgrade the plugin, check what it answers, and return the code of its queries."""
    install(folder, number)
    assert host.host.reload().ok
    with host.client() as client:
        assert client.get("/grown").json() == [100 + number, 2]
    constants = sys.modules["reloaded_things.plugin"].grown.__code__.co_consts
    return [weakref.ref(each) for each in constants if isinstance(each, CodeType)]


def test_a_new_version_of_an_entity_is_queried_as_it_is_now(folder: Path) -> None:
    """A property of an entity is translated from the newest version, and no query of an earlier one is kept."""
    install(folder, 0)
    with running_host(distributions=InFolder(folder)) as host:
        codes = [upgrade(host, folder, number) for number in range(1, 21)]
        gc.collect()
        assert [sum(code() is not None for code in each) for each in codes] == [0] * 19 + [2]
