"""The parts of a request's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import falcon
import pytest
from tests.host.plugins import Plugin, Speaker, Watcher, group_of

from plughost import Observer, Store
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path

    import falcon.testing

    from plughost.stores import OpenStore


class Waits:
    """Reads from a store."""

    def __init__(self, store: OpenStore[Any]) -> None:
        """Store the store."""
        self.store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read from it."""
        self.store.read(lambda session: session.row("SELECT 1"))


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_timings_show_the_parts_of_a_requests_time(engine: str, tmp_path: Path) -> None:
    """They are the wait for a thread, the resource and its stores; they are recorded only if an observer asks."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("SELECT 1;")
    store = Store(name="kept", migrations=tmp_path, tables=())
    watchers = Watcher(), Watcher()
    plugins = [
        Plugin(
            register_stores=lambda context: [store],
            register_routes=lambda context: [group_of(Waits(context.stores["kept"]))],
            register_observers=lambda context, watcher=watcher, timings=timings: [
                Observer(name="watch", observe=watcher, timings=timings)
            ],
        )
        for watcher, timings in zip(watchers, (True, False), strict=True)
    ]
    for plugin in plugins:
        installed = [plugin_distribution("a", plugin)]
        settings = {"sites": {"main": {"http_engine": engine}}}
        with running_host(distributions=installed, settings=settings) as host, host.client() as client:
            assert client.get("/say").status_code == 200
            assert client.get("/elsewhere").status_code == 404
            host.host.view.catch_up()
    (asked, missing), others = (tuple(each for batch in watcher.batches for each in batch) for watcher in watchers)
    assert asked.timings is not None
    assert 0 < asked.timings.store < asked.timings.resource < asked.seconds
    assert asked.timings.queued > 0
    assert missing.timings is not None
    assert missing.timings[1:] == (0.0, 0.0)
    assert [each.timings for each in others] == [None, None]


def test_timings_begin_with_a_reload_that_brings_an_observer_of_them() -> None:
    """The listeners that stay open record from then on when requests arrive."""
    watcher = Watcher()
    observing = Plugin(
        register_observers=lambda context: [Observer(name="watch", observe=watcher, timings=True)],
    )
    installed = [plugin_distribution("a", Speaker("hello"))]
    with running_host(distributions=installed) as host, host.client() as client:
        installed.append(plugin_distribution("b", observing))
        assert host.host.reload().added == ("b",)
        assert client.get("/say").status_code == 200
        host.host.view.catch_up()
    assert watcher.batches[0][0].timings is not None
    assert watcher.batches[0][0].timings.queued > 0
