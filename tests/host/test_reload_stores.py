"""Reloads that replace a store."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
from tests.host.plugins import Plugin, group_of
from tests.waiting import wait_until

from plughost import Job, JobRun, Store
from plughost._api.events import Event, Events
from plughost._runtime.host import Host
from plughost._settings.sources import read_settings
from plughost.testing import fresh_postgresql, plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path

    import falcon
    import pytest

    from plughost import PluginContext
    from plughost.stores import OpenStore


class Checks:
    """Names the health checks of the host."""

    def __init__(self, context: PluginContext[Any]) -> None:
        """Keep the host."""
        self.host = context.host

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Return the names."""
        resp.media = [each.name for each in self.host.checks]


class Reads:
    """Reads from a store."""

    def __init__(self, store: OpenStore[Any]) -> None:
        """Keep the store."""
        self.store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read from it."""
        resp.media = self.store.read(lambda session: session.row("SELECT 1 AS one"))


def test_a_plugin_that_shares_a_store_gets_the_reopened_one(tmp_path: Path) -> None:
    """A store with changed settings replaces the earlier one, also for a plugin that requires its owner."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("SELECT 1;")
    owner = Plugin(register_stores=lambda context: [Store(name="kept", migrations=tmp_path, tables=())])
    reader = Plugin(register_routes=lambda context: [group_of(Reads(context.stores["kept"]))])
    installed = [
        plugin_distribution("owner", owner),
        plugin_distribution("reader", reader, requires=["plughost-owner"]),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/say").status_code == 200
        file = host.host.settings.file
        assert file is not None
        file.write_text(f"{file.read_text()}\n[stores]\npatience = 7\n")
        assert host.host.reload().changed == ("owner", "reader")
        assert client.get("/say").status_code == 200


def test_a_stop_closes_the_stores(tmp_path: Path) -> None:
    """Then no log is left beside the file."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("CREATE TABLE notes (id INTEGER PRIMARY KEY);")
    store = Store(name="kept", migrations=tmp_path, tables=("notes",))
    plugin = Plugin(
        register_stores=lambda context: [store],
        register_routes=lambda context: [group_of(Reads(context.store(store)))],
    )
    with running_host(distributions=[plugin_distribution("plugin", plugin)]) as host, host.client() as client:
        folder = host.host.settings.data_dir
        assert client.get("/say").status_code == 200
        assert [each.name for each in folder.rglob("*-wal")] == ["kept.sqlite3-wal"]
        host.host.stop()
        assert not [*folder.rglob("*-wal")]


def test_the_first_requests_find_the_checks(tmp_path: Path) -> None:
    """Ports are open before the stores are: a host without checks would count as healthy then."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("SELECT 1;")
    plugin = Plugin(
        register_stores=lambda context: [Store(name="kept", migrations=tmp_path, tables=())],
        register_routes=lambda context: [group_of(Checks(context))],
    )
    file = tmp_path / "plughost.toml"
    file.write_text('[sites.main]\nlisteners = ["http"]\nhttp_port = 0\n[log]\nformat = "json"\n')
    lines, found = Events(), []

    def ask(event: Event) -> None:
        if event.fields.get("event") == "the store was migrated":
            found.append(httpx.get(f"http://127.0.0.1:{host.ports['main', 'http']}/say").json())

    lines.subscribe(ask)
    installed = [plugin_distribution("plugin", plugin)]
    host = Host(read_settings(file, environment={}), distributions=lambda: installed, lines=lines)
    host.start()
    host.stop()
    assert found == [["store kept"]]


def test_a_job_that_meets_a_breaking_migration_is_a_warning_without_a_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is wrong with it: the older version's store was closed, and the new version runs it."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("SELECT 1;")

    def plugin(breaking: tuple[int, ...]) -> Plugin:
        store = Store(name="kept", migrations=tmp_path, tables=(), breaking=breaking)

        def work(context: PluginContext[Any], run: JobRun) -> None:
            run.wait(60)
            context.store(store).read(lambda session: session.row("SELECT 1"))

        return Plugin(
            register_stores=lambda context: [store],
            register_jobs=lambda context: [Job(name="work", run=partial(work, context), at_start=True)],
        )

    file = tmp_path / "plughost.toml"
    file.write_text('[log]\nformat = "json"\n')
    installed = [plugin_distribution("plugin", plugin(()))]
    host = Host(read_settings(file, environment={}), distributions=lambda: installed)
    host.start()
    try:
        wait_until(lambda: host.jobs.views()[0].running_since)
        (tmp_path / "sqlite" / "0002_break.sql").write_text("SELECT 1;")
        installed[:] = [plugin_distribution("plugin", plugin((2,)), version="2.0")]
        assert host.reload().ok
    finally:
        host.stop()
    (line,) = [json.loads(each) for each in capfd.readouterr().err.splitlines() if "job failed" in each]
    assert (line["level"], "exception" in line) == ("warning", False)
    assert "is closed: another version of its plugin serves" in line["reason"]


def test_a_reload_that_serves_a_store_from_another_place_warns(tmp_path: Path) -> None:
    """The store is empty there. In a URL, another user, password or `application_name` is no other place."""
    for dialect in ("sqlite", "postgresql"):
        (tmp_path / dialect).mkdir()
        (tmp_path / dialect / "0001_begin.sql").write_text("SELECT 1;")
    plugin = Plugin(
        register_stores=lambda context: [Store(name="kept", migrations=tmp_path, tables=())],
        register_routes=lambda context: [group_of(Reads(context.stores["kept"]))],
    )
    installed = [plugin_distribution("plugin", plugin)]
    with fresh_postgresql() as url, running_host(distributions=installed) as host:
        warnings: list[Event] = []
        end = host.host.view.lines.subscribe(
            lambda event: warnings.append(event) if event.fields["level"] == "warning" else None
        )
        file = host.host.settings.file
        assert file is not None
        text = file.read_text()
        for used in (url, f"{url.replace('://postgres@', '://')}?user=postgres&password=secret&application_name=a"):
            file.write_text(f"{text}\n[stores]\nurl = '{used}'\n")
            assert host.host.reload().changed == ("plugin",)
        end()
    (fields,) = [each.fields for each in warnings if "place" in each.fields["event"]]
    assert fields["event"] == "the store is served from another place now; its data was not moved"
    assert (fields["store"], fields["before"][-12:], fields["place"]) == ("kept", "kept.sqlite3", url)
