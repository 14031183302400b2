"""Health: `/q/health` and the console show the same checks, of independent plugins."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from plughost.testing import running_host

if TYPE_CHECKING:
    from plughost._api.events import Event


def test_the_console_shows_the_checks_of_probes() -> None:
    """Each check of `/q/health` is a row on the console's page: those of stores, of plugins and of the host."""
    with running_host(["health", "dev-console", "messages", "library-auth"]) as host, host.client() as client:
        client.get(host.host.view.answer_query("dev-console", "link")["link"])
        page = client.get("/q/dev/health").text
        found = client.get("/q/health").json()["checks"]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>.*?data-label="Plugin">(.*?)</td>', page, re.DOTALL)
    shown = {html.unescape(name): plugin for name, plugin in rows}
    assert sorted(shown) == [check["name"] for check in found]
    assert shown.items() >= {"store messages": "messages", "certificate": "health", "disk": "health"}.items()
    assert {"process", "host", "plugins"} < shown.keys()
    assert any(plugin == "library-auth" for plugin in shown.values())


def test_many_probes_ask_a_store_once() -> None:
    """The result of a store's check is cached like that of any check."""
    asked: list[Event] = []
    settings = {"plugins": {"health": {"cache": 600}}}
    with running_host(["health", "messages"], settings=settings) as host, host.client() as client:
        host.host.events.subscribe(asked.append)
        names = [{check["name"] for check in client.get("/q/health/ready").json()["checks"]} for _ in range(5)]
    assert all("store messages" in each for each in names)
    assert [event.fields["store"] for event in asked] == ["messages"]
