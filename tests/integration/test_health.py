"""Health: the same checks at `/q/health` and in the console, of plugins that know nothing of each other."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from plughost.testing import running_host

if TYPE_CHECKING:
    from plughost._api.events import Event


def test_the_console_shows_what_probes_ask_for() -> None:
    """Each check of `/q/health` is a row of the console's page: the stores', the plugins' and those of the host."""
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


def test_a_storm_of_probes_asks_a_store_once() -> None:
    """What the check of a store found is told again while it is kept, as any check's is."""
    asked: list[Event] = []
    settings = {"plugins": {"health": {"cache": 600}}}
    with running_host(["health", "messages"], settings=settings) as host, host.client() as client:
        host.host.events.subscribe(asked.append)
        names = [{check["name"] for check in client.get("/q/health/ready").json()["checks"]} for _ in range(5)]
    assert all("store messages" in each for each in names)
    assert [event.fields["store"] for event in asked] == ["messages"]
