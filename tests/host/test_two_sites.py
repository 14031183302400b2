"""Routes conflict only on one site: one prefix may stand on two."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.host.plugins import Plugin, Speaker, group_of, reason, serving

from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon


class Named:
    """Answers with its name, whatever the field of its path is called."""

    def __init__(self, name: str) -> None:
        """Store the name."""
        self.name = name

    def on_get(self, req: falcon.Request, resp: falcon.Response, **_: str) -> None:
        """Answer."""
        resp.media = {"word": self.name}


@pytest.mark.parametrize(("moved", "stays"), [("a", "b"), ("b", "a")])
def test_one_prefix_on_two_sites_is_no_conflict(moved: str, stays: str) -> None:
    """Two plugins may use one prefix on two sites, and the settings can move either plugin to the other site."""
    installed = [plugin_distribution(name, serving(Named(name), "/say", f"/{{{name}}}")) for name in "ab"]
    settings = {"plugins": {moved: {"site": "library"}}}
    with running_host(distributions=installed, settings=settings) as host:
        with host.client("main") as client:
            assert client.get("/say/x").json()["word"] == stays
        with host.client("library") as client:
            assert client.get("/say/x").json()["word"] == moved


def test_a_plugin_has_different_routes_below_one_prefix_on_two_sites() -> None:
    """Routes conflict only on one site."""
    groups = [group_of(Named(site), "/say", f"/{{{site}}}", site=site) for site in ("main", "library")]
    plugin = Plugin(register_routes=lambda context: groups)
    with running_host(distributions=[plugin_distribution("a", plugin)]) as host:
        for site in ("main", "library"):
            with host.client(site) as client:
                assert client.get("/say/x").json()["word"] == site


def test_a_plugins_own_routes_that_conflict_are_its_authors_matter() -> None:
    """Two groups of one plugin on one site: no operator can move one of them."""
    groups = [group_of(Named("a"), "/y", "/z/{a}"), group_of(Named("b"), "/y/z", "/{b}/x")]
    plugin = Plugin(register_routes=lambda context: groups)
    with running_host(distributions=[plugin_distribution("a", plugin)]) as host:
        failure = reason(host, "a")
        assert "the other route belongs to a (plughost-a 1.0). Report it to the plugin's author" in failure


def test_the_host_can_be_looked_at_while_a_site_opens_and_closes() -> None:
    """Its listeners and requests in flight are there for threads that are interrupted all the time."""
    installed = [plugin_distribution("one", Speaker("one", "/one"))]
    two = plugin_distribution("two", Speaker("two", "/two", "library"))
    ended = threading.Event()
    with ExitStack() as stack:
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        host = stack.enter_context(running_host(distributions=installed)).host
        pool = stack.enter_context(ThreadPoolExecutor(3))
        stack.callback(ended.set)

        def look() -> None:
            while not ended.is_set():
                sys.setswitchinterval(1e-6)  # a site that opens sets another
                assert host.view.listeners
                assert host.view.in_flight
                assert host.view.in_flight_by_plugin
                assert host.ports

        looks = [pool.submit(look) for _ in range(3)]
        for _ in range(8):
            installed.append(two)
            assert host.reload().added == ("two",)
            del installed[-1]
            assert host.reload().removed == ("two",)
        ended.set()
        for each in looks:
            each.result(60)
