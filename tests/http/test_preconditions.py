"""`check_preconditions` decides on a request by its entity tags (RFC 9110, 13.1.1 and 13.1.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import falcon
import falcon.testing
import pytest

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import check_preconditions
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


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
    ("header", "value", "expected"),
    [
        ("If-Match", '"a"', (200, 200, 204, 412)),
        ("If-Match", '"x", "b"', (412, 412, 204, 412)),
        ("If-Match", 'W/"a"', (412, 412, 412, 412)),
        ("If-Match", "*", (200, 200, 204, 412)),
        ("If-Match", '"*"', (412, 412, 412, 412)),
        ("If-Match", '""', (412, 412, 412, 412)),
        ("If-Match", ",", (412, 412, 412, 412)),
        ("If-None-Match", '"a"', (304, 304, 412, 204)),
        ("If-None-Match", 'W/"a"', (304, 304, 412, 204)),
        ("If-None-Match", '"x", "b"', (200, 200, 412, 204)),
        ("If-None-Match", "*", (304, 304, 412, 204)),
        ("If-None-Match", '"*"', (200, 200, 204, 204)),
        ("If-None-Match", ",", (200, 200, 204, 204)),
    ],
)
def test_tags_decide(client: httpx.Client, header: str, value: str, expected: tuple[int, ...]) -> None:
    """Weak tags match only in `If-None-Match`, and `*` whatever exists; a list counts if one of its tags does."""
    requests = (("GET", "one"), ("HEAD", "one"), ("PUT", "one"), ("PUT", "none"))
    answers = [client.request(method, f"/things/{name}", headers={header: value}) for method, name in requests]
    assert tuple(each.status_code for each in answers) == expected


def test_if_match_precedes_if_none_match(client: httpx.Client) -> None:
    """An outdated client gets 412, whatever else it has; without conditions, nothing is refused."""
    assert client.get("/things/one", headers={"If-Match": '"x"', "If-None-Match": '"a"'}).status_code == 412
    assert [client.get("/things/one").status_code, client.put("/things/none").status_code] == [200, 204]


@pytest.mark.parametrize("tag", ['"a"', 'W/"a"'])
def test_a_tag_with_quotes_is_a_mistake(tag: str) -> None:
    """It would never match; `resp.etag` returns the tag of `resp.etag = "a"` with them."""
    request = falcon.Request(falcon.testing.create_environ(headers={"If-None-Match": '"a"'}))
    with pytest.raises(ValueError, match="without quotes"):
        check_preconditions(request, tag)
