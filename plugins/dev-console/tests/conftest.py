"""A host with the console and an example plugin, and an authenticated client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from plughost import Middleware, Operation, Page, PluginContext, Route, RouteGroup, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path

    import falcon
    import httpx

NASTY = "<script>alert(1)</script>"


class Item:
    """Answers for every name except one."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str = "") -> None:
        """Answer."""
        if name == "broken":
            raise ValueError(NASTY)
        resp.media = {"name": name}


class Till:
    """Middleware that does nothing."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Do nothing."""


class Shop:
    """A plugin with routes, middleware and pages."""

    @hookimpl
    def register_middleware(self, context: PluginContext[Any]) -> list[Middleware]:
        """Add middleware to every site."""
        return [Middleware(name="till", component=Till(), scope="host")]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount a list and an item."""
        routes = (
            Route("", Item(), {"GET": Operation(summary=f"List {NASTY}")}),
            Route("/{name}", Item(), {"GET": Operation(summary="Show an item")}),
        )
        return [RouteGroup(prefix="/items", routes=routes)]

    @hookimpl
    def register_pages(self, context: PluginContext[Any]) -> list[Page]:
        """Offer a page that works, and one that fails."""

        def fail() -> str:
            raise RuntimeError(NASTY)

        return [
            Page(name="shelf", title="The shelf", render=lambda: "<h2>What is on it</h2>"),
            Page(name="broken", title="Broken", render=fail),
        ]


class Console:
    """The HTTP side of a browser in the console."""

    def __init__(self, host: RunningHost, client: httpx.Client) -> None:
        """Store an authenticated client."""
        self.host = host
        self.client = client
        self.origin = str(client.base_url).rstrip("/")

    def get(self, path: str = "", **options: Any) -> httpx.Response:
        """Get a page of the console."""
        return self.client.get(f"/q/dev{path}", **options)

    def token(self) -> str:
        """Return the token in the console's forms."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get().text)
        assert found is not None
        return found[1]

    def post(self, path: str, /, headers: Any = None, **fields: str) -> httpx.Response:
        """Send a form as the console's own page does."""
        own = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        given = {"csrf": self.token(), **fields}
        return self.client.post(f"/q/dev{path}", headers={**own, **(headers or {})}, data=given)

    def finish(self, answer: httpx.Response) -> str:
        """Wait for the job that an answer started, and return the page with its result."""
        assert answer.status_code == 303, answer.text
        location = answer.headers["Location"]
        job = location.partition("job=")[2]
        deadline = monotonic() + 120
        while not self.get(f"/jobs/{job}").json()["done"]:
            assert monotonic() < deadline, "the job was never done"
        return self.client.get(location).text

    def lines(self, number: int = 1, after: str = "0") -> list[dict[str, Any]]:
        """Return the recorded log lines, once there are enough: they come in a thread of their own."""
        deadline = monotonic() + 120
        while len(found := self.get(f"/log/new?after={after}").json()) < number:
            assert monotonic() < deadline, f"there are {len(found)} lines, not {number}"
        return list(found)


def link(host: RunningHost) -> str:
    """Return the link that the host showed at its start."""
    assert host.host.generation is not None
    lines = list(host.host.generation.announcements())
    return next(line for line in lines if "/q/dev/open" in line).removeprefix("Console: ")


Start = Callable[..., AbstractContextManager[Console]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that starts a host with the console and other plugins, and enters the console."""

    @contextmanager
    def starting(**plugins: Any) -> Iterator[Console]:
        options = {key.removeprefix("_"): plugins.pop(key) for key in list(plugins) if key.startswith("_")}
        brought = [plugin_distribution(name.replace("_", "-"), plugin) for name, plugin in plugins.items()]
        names = ["dev-console", *(name.replace("_", "-") for name in plugins)]
        distributions = [*metadata.distributions(), *brought]
        with running_host(names, distributions=distributions, **options) as host, host.client() as client:
            assert client.get(link(host)).status_code == 303
            yield Console(host, client)

    return starting


@pytest.fixture
def console(start: Start) -> Iterator[Console]:
    """The console of a host that also serves the shop."""
    with start(shop=Shop) as entered:
        yield entered
