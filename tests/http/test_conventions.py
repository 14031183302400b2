"""Declarations about an operation's future are in each of its responses, and in its description."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    import falcon
    import httpx

    from plughost import PluginContext

OLD = {
    "Deprecation": "@1798761600",
    "Sunset": "Thu, 01 Jul 2027 00:00:00 GMT",
    "Link": '</v2>; rel="successor-version"',
}


class Says:
    """Answers with a link of its own."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.append_link("/next", "next")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Fail."""
        raise ValueError("always")


class Plugin:
    """Mounts an old group, one operation of which is removed sooner, and a new group."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount them."""
        get = Operation(summary="Get it")
        post = Operation(summary="Post it", sunset=datetime(2027, 2, 1, 12, tzinfo=UTC))
        routes = (Route("", Says(), {"GET": get, "POST": post}),)
        new = RouteGroup(prefix="/v2", routes=(Route("", Says(), {"GET": get, "POST": Operation(summary="Post it")}),))
        deprecated, sunset = date(2027, 1, 1), date(2027, 7, 1)
        return [RouteGroup(prefix="/v1", routes=routes, deprecated=deprecated, sunset=sunset, successor="/v2"), new]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a host with the plugin."""
    with running_host(distributions=[plugin_distribution("old", Plugin())]) as host, host.client() as opened:
        yield opened


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_headers_about_the_future_keep_the_resources_own_links(client: httpx.Client, method: str) -> None:
    """The resource's own links stay in the response."""
    answer = client.request(method, "/v1")
    assert {name: answer.headers[name] for name in OLD} == OLD | {"Link": f"</next>; rel=next, {OLD['Link']}"}


def test_an_operation_overrides_its_group(client: httpx.Client) -> None:
    """This holds in errors, too."""
    answer = client.post("/v1")
    assert answer.status_code == 500
    assert {name: answer.headers[name] for name in OLD} == OLD | {"Sunset": "Mon, 01 Feb 2027 12:00:00 GMT"}


def test_operations_without_a_declared_future_have_no_such_headers(client: httpx.Client) -> None:
    """Operations without declarations have none of the fields, and missing methods neither."""
    for answer in (client.get("/v2"), client.delete("/v1")):
        assert "Deprecation" not in answer.headers
        assert "Sunset" not in answer.headers
