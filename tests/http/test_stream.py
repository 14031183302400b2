"""JSON arrays that are produced while they are sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import falcon
import httpx
import pytest
from falcon import testing

from plughost import hookimpl
from plughost._api.declarations import Operation, Route, RouteGroup
from plughost._apps.application import build_app
from plughost._apps.mounting import mount
from plughost._apps.site import Site
from plughost._logging import silent_logger
from plughost.http._json.codec import send_array
from plughost.stores import Unavailable
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from plughost._api.context import PluginContext

Batches = list[Sequence[object]]


class Listing:
    """A resource that lists batches."""

    def __init__(self, batches: Iterator[Sequence[object]] | Batches) -> None:
        self.batches = batches

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List them."""
        send_array(resp, self.batches)


def client(batches: Iterator[Sequence[object]] | Batches) -> testing.TestClient:
    """Return a client of an app that lists the batches."""
    route = Route("", Listing(batches), {"GET": Operation(summary="List")})
    group = mount("listing", RouteGroup(prefix="/list", routes=(route,)), 1000)
    return testing.TestClient(Site("main", build_app([group], [], silent_logger())))


@pytest.mark.parametrize("batches", [[], [[]], [[1, "two"]], [[1], [2, 3]], [[1], [], [2]], [[], [], []]], ids=str)
def test_batches_become_one_array(batches: Batches) -> None:
    """The array has the items in order, however they are divided into batches."""
    answer = client(batches).simulate_get("/list")
    assert json.loads(answer.content) == [item for batch in batches for item in batch]


def test_one_batch_has_a_length() -> None:
    """A list of one batch has a Content-Length, a longer list has none."""
    assert client([[1, 2]]).simulate_get("/list").headers["content-length"] == "5"
    assert "content-length" not in client([[1], [2]]).simulate_get("/list").headers


def test_a_long_list_is_fetched_as_it_is_sent() -> None:
    """At most one batch more than was sent is fetched."""
    asked: list[int] = []

    def batches() -> Iterator[Sequence[int]]:
        for number in range(100):
            asked.append(number)
            yield [number]

    response = falcon.Response()
    send_array(response, batches())
    stream: Any = response.stream
    assert asked == [0, 1]
    next(stream), next(stream), next(stream)
    assert asked == [0, 1, 2]


def test_an_early_error_is_answered() -> None:
    """If the store fails before anything was sent, the answer is 503."""

    def batches(fail: bool) -> Iterator[Sequence[int]]:
        if fail:
            raise Unavailable("gone")
        yield [1]

    answer = client(batches(fail=True)).simulate_get("/list")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"


def test_a_late_error_is_raised_to_the_engine() -> None:
    """If the store fails later, an exception ends the array, not a bracket."""

    def batches() -> Iterator[Sequence[int]]:
        yield [1]
        yield [2]
        raise Unavailable("gone")

    response = falcon.Response()
    send_array(response, batches())
    stream: Any = response.stream
    sent = [next(stream), next(stream)]
    with pytest.raises(Unavailable):
        next(stream)
    assert sent == [b"[1", b",2"]


class FailingPlugin:
    """A plugin whose list fails in the middle."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        route = Route("", Listing(FailsLate()), {"GET": Operation(summary="List")})
        return [RouteGroup(prefix="/list", routes=(route,))]


class FailsLate(list[Sequence[object]]):
    """Batches, the third of which fails."""

    def __iter__(self) -> Iterator[Sequence[object]]:
        """Yield two batches, then fail."""
        yield ["x" * 100_000]
        yield ["y" * 100_000]
        raise Unavailable("gone")


@pytest.mark.parametrize("options", [{}, {"scheme": "https"}, {"scheme": "https", "http2": True}], ids=str)
def test_a_client_sees_that_an_answer_is_incomplete(options: dict[str, Any]) -> None:
    """On either engine, an error in the middle ends the response so that no client takes it for complete."""
    with (
        running_host(distributions=[plugin_distribution("failing", FailingPlugin())]) as host,
        host.client(**options) as client,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        client.get("/list")
