"""A failed upgrade leaves its store as it was, because the older version still serves it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.host.packages import plugin_entry, write_package
from tests.upgrades.notes_plugin import ADD, RENAME, create, install, list_notes, notes_host, plughost_command

RAISES = "raise RuntimeError('no routes today')"
READS = "context.stores['notes'].read(lambda db: None)"


@pytest.mark.parametrize(
    ("upgrade", "message"),
    [
        ({"steps": (RENAME,), "hook": RAISES}, "no routes today"),
        ({"steps": (RENAME,), "hook": READS}, "stores open after the hooks"),
        ({"steps": (RENAME, "SELECT nonsense FROM nowhere;")}, "0003_step.sql failed"),
        ({"steps": (RENAME,), "column": "stars"}, "do not fit its tables"),
    ],
    ids=["a hook", "a hook that uses the store", "a later step", "entities"],
)
def test_a_failing_version_leaves_the_schema_as_it_was(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any], upgrade: dict[str, Any], message: str
) -> None:
    """The older version continues to serve, and the report contains the reason."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        before = create(host, 3)
        steps, others = upgrade["steps"], {key: value for key, value in upgrade.items() if key != "steps"}
        install(packages, "2.0", *steps, **{"column": "content", **others})
        report = host.ask("reload")
        assert (report["swapped"], message in report["failed"][0][1]) == (False, True), report
        after = create(host, 3)
        assert list_notes(host) == ("1.0", before | after)


def test_a_version_with_only_new_migrations_applies_them(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """Its declaration is unchanged, but a reload applies the new migrations, and refuses to go back."""
    install(packages, "1.0", pony=False)
    with notes_host(tmp_path, packages, settings) as host:
        before = create(host, 3)
        install(packages, "2.0", RENAME, column="content", pony=False)
        assert host.ask("reload")["ok"]
        assert list_notes(host) == ("2.0", before)
        install(packages, "1.0", pony=False)
        report = host.ask("reload")
        assert (report["swapped"], "knows no newer one than 1" in report["failed"][0][1]) == (False, True), report
        assert list_notes(host) == ("2.0", before)


REFERS = (
    "ALTER TABLE {name} ADD COLUMN parent INTEGER;"
    "CREATE TABLE {name}_parents (id INTEGER PRIMARY KEY);"
    "CREATE TABLE {name}_links (parent INTEGER REFERENCES {name}_parents (id) DEFERRABLE INITIALLY DEFERRED);"
    "INSERT INTO {name}_links VALUES (7);"
)


@pytest.mark.parametrize(
    ("step", "reason"),
    [(REFERS, "break a constraint"), ("SELECT nonsense FROM nowhere;", "nowhere")],
    ids=["at commit", "at once"],
)
def test_a_second_failing_migration_undoes_the_first(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any], step: str, reason: str
) -> None:
    """If a reload migrates two stores, neither is migrated unless both can be; `plughost check` finds the error too."""
    for name in ("first", "second"):
        install(packages, "1.0", name=name)
    with notes_host(tmp_path, packages, settings) as host:
        install(packages, "2.0", RENAME, name="first", column="content")
        install(packages, "2.0", step, name="second")
        assert reason in plughost_command(tmp_path, packages, "check", "--dev", code=1)
        report = host.ask("reload")
        assert (report["swapped"], reason in report["failed"][0][1]) == (False, True), report
        for name in ("first", "second"):
            created = create(host, 2, f"/{name}")
            assert list_notes(host, f"/{name}") == ("1.0", created)


def test_a_new_plugin_with_a_failing_migration_affects_no_other(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """At start and when it is added, it alone fails; the other plugins of its site are migrated and serve."""
    install(packages, "1.0", ADD, name="good")
    install(packages, "1.0", "SELECT nonsense FROM nowhere;", name="bad")
    with notes_host(tmp_path, packages, settings) as host, host.client() as client:
        for _ in range(2):
            assert list_notes(host, "/good")[0] == "1.0"
            assert client.get("/bad").status_code == 404
            report = host.ask("reload")
            assert (report["swapped"], report["failed"][0][0].split()[0]) == (True, "bad"), report


def test_a_busy_port_leaves_the_schema_as_it_was(tmp_path: Path, packages: Path, settings: Mapping[str, Any]) -> None:
    """A start that fails at its last step has migrated nothing."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        create(host, 1)
        port = host.port()
        install(packages, "2.0", RENAME, column="content")
        other = tmp_path / "other"
        other.mkdir()
        taken = {"main": {"listeners": ["http"], "http_port": port}, "library": {"listeners": ["http"]}}
        shared = {**settings, "sites": taken, "data_dir": str(other)}
        with pytest.raises(AssertionError, match="Cannot listen"), notes_host(other, packages, shared):
            pass
        assert len(list_notes(host)[1]) == 1


def test_required_plugins_are_refused_before_a_store_is_migrated(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """If another plugin prevents the start, nothing has been migrated, and the older version starts again."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        before = create(host, 1)
        host.stop()
    install(packages, "2.0", RENAME, column="content")
    install(packages, "1.0", name="other", hook=RAISES)
    required = {**settings, "required": ["other"]}
    with pytest.raises(AssertionError, match="other is failed"), notes_host(tmp_path, packages, required):
        pass
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        assert list_notes(host) == ("1.0", before)


READER = """
from plughost import Operation, Route, RouteGroup, hookimpl


class Reads:
    def __init__(self, store):
        self.store = store

    def on_get(self, req, resp):
        resp.media = self.store.read(lambda db: db.select("SELECT count(*) FROM notes")[0])


@hookimpl
def register_routes(context):
    {hook}
    route = Route("", Reads(context.stores["notes"]), {{"GET": Operation(summary="Count")}})
    return [RouteGroup(prefix="/reader", routes=(route,))]
"""


def install_reader(packages: Path, version: str, hook: str = "pass") -> None:
    """Install a plugin that uses another plugin's store."""
    files = {"reading.py": READER.format(hook=hook)}
    points = plugin_entry("reader", "reading")
    write_package(packages, "plughost-reader", files, version=version, requires=["plughost-notes"], entry_points=points)


def test_plugins_that_share_a_store_are_upgraded_together(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """If a plugin that uses another's store fails, the store isn't migrated; later both serve the new one."""
    install(packages, "1.0")
    install_reader(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host, host.client() as client:
        before = create(host, 2)
        install(packages, "2.0", RENAME, column="content", declared=", breaking=(2,)")
        install_reader(packages, "2.0", RAISES)
        assert host.ask("reload")["swapped"] is False
        assert (list_notes(host), client.get("/reader").json()) == (("1.0", before), 2)
        install_reader(packages, "3.0")
        assert host.ask("reload")["ok"]
        assert (list_notes(host), client.get("/reader").json()) == (("2.0", before), 2)
