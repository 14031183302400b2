"""`check_preconditions` decides on a request by its entity tags (RFC 9110, 13.1.1 and 13.1.2)."""

from __future__ import annotations

from collections.abc import Iterator

import falcon
import httpx
import pytest

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import check_preconditions
from plughost.testing import plugin_distribution, running_host


class Thing:
    """A thing with two representations, tagged `a` and `b`; the thing `none` does not exist."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Send the first representation, or 304."""
        resp.status = falcon.HTTP_304 if check_preconditions(req, *(() if name == "none" else ("a",))) else 200

    def on_put(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Pretend a change."""
        assert not check_preconditions(req, *(() if name == "none" else ("a", "b")))
        resp.status = falcon.HTTP_204

    @hookimpl
    def register_routes(self) -> list[RouteGroup]:
        """Mount it."""
        operations = {"GET": Operation(summary="Get"), "PUT": Operation(summary="Put")}
        return [RouteGroup(prefix="/things", routes=(Route("/{name}", self, operations),))]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of the thing."""
    with running_host(distributions=[plugin_distribution("thing", Thing())]) as host, host.client() as opened:
        yield opened


@pytest.mark.parametrize(
    ("header", "value", "get", "put", "put_none"),
    [
        ("If-Match", '"a"', 200, 204, 412),
        ("If-Match", '"x", "b"', 412, 204, 412),
        ("If-Match", 'W/"a"', 412, 412, 412),
        ("If-Match", "*", 200, 204, 412),
        ("If-Match", '"*"', 412, 412, 412),
        ("If-Match", '""', 412, 412, 412),
        ("If-Match", ",", 412, 412, 412),
        ("If-None-Match", '"a"', 304, 412, 204),
        ("If-None-Match", 'W/"a"', 304, 412, 204),
        ("If-None-Match", '"x", "b"', 200, 412, 204),
        ("If-None-Match", "*", 304, 412, 204),
        ("If-None-Match", '"*"', 200, 204, 204),
        ("If-None-Match", ",", 200, 204, 204),
    ],
)
def test_tags_decide(client: httpx.Client, header: str, value: str, get: int, put: int, put_none: int) -> None:
    """Weak tags match only in `If-None-Match`, and `*` whatever exists; a list counts if one of its tags does."""
    headers = {header: value}
    statuses = [client.request(method, "/things/one", headers=headers).status_code for method in ("GET", "HEAD", "PUT")]
    assert statuses == [get, get, put]
    assert client.put("/things/none", headers=headers).status_code == put_none


def test_if_match_precedes_if_none_match(client: httpx.Client) -> None:
    """An outdated client gets 412, whatever else it has; without conditions, nothing is refused."""
    assert client.get("/things/one", headers={"If-Match": '"x"', "If-None-Match": '"a"'}).status_code == 412
    assert [client.get("/things/one").status_code, client.put("/things/none").status_code] == [200, 204]
