"""Server-sent events reach all readers on each engine, through every middleware, and hold no thread."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.http.table import route
from tests.waiting import wait_until

from plughost import Observer, RouteGroup, hookimpl
from plughost.http import EventChannel, ServerSentEvent, send_events
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon
    import httpx
    from tests.lanes import Lane

    from plughost import PluginContext, RequestRecord


class News:
    """A plugin with a channel."""

    def __init__(self, **options: Any) -> None:
        """Open the channel."""
        self.channel = EventChannel(**options)
        self.missed: list[ServerSentEvent] = []
        self.seen: list[RequestRecord] = []
        self.cache_control: str | None = None

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send missed events first, then new ones."""
        last = req.get_header("Last-Event-ID")
        if self.cache_control is not None:
            resp.set_header("Cache-Control", self.cache_control)
        send_events(resp, self.channel, missed=lambda: [each for each in self.missed if last and str(each.id) > last])

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount the stream."""
        return [RouteGroup(prefix="/news", routes=(route("", self),))]

    @hookimpl
    def register_observers(self, context: PluginContext[Any]) -> list[Observer]:
        """Record each request."""
        return [Observer(name="seen", observe=self.seen.extend)]


def settings_of(engine: str) -> dict[str, Any]:
    """Return the settings of a host with the access log and compression."""
    main = {"http_engine": engine, "compression": {"encodings": ["gzip"], "minimum_size": 1}}
    return {"sites": {"main": main}, "log": {"access": True}}


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, tuple[RunningHost, News]]]:
    """A host on each engine."""
    with ExitStack() as stack:
        running = {}
        for engine in ("waitress", "granian"):
            news = News()
            host = running_host(distributions=[plugin_distribution("news", news)], settings=settings_of(engine))
            running[engine] = stack.enter_context(host), news
        yield running


@pytest.fixture
def news(hosts: dict[str, tuple[RunningHost, News]], lane: Lane) -> Iterator[News]:
    """The plugin on the lane's host, without readers and without missed events."""
    plugin = hosts[lane.engine][1]
    wait_until(lambda: plugin.channel.readers == 0)
    plugin.missed, plugin.cache_control = [], None
    yield plugin
    wait_until(lambda: plugin.channel.readers == 0)  # each reader has left


@pytest.fixture
def client(hosts: dict[str, tuple[RunningHost, News]], lane: Lane, news: News) -> Iterator[httpx.Client]:
    """A client on the lane, which leaves before the readers are counted."""
    with hosts[lane.engine][0].client(scheme=lane.scheme, http2=lane.http2) as opened:
        opened.headers["Accept-Encoding"] = "identity"
        yield opened


def lines_of(answer: httpx.Response) -> Iterator[str]:
    """Yield the lines of a stream, except heartbeats."""
    return (line for line in answer.iter_lines() if line and not line.startswith(("retry:", ":")))


def test_a_published_event_arrives_at_once(client: httpx.Client, news: News) -> None:
    """Each reader gets it with its name, its id and its data line by line."""
    with client.stream("GET", "/news") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"  # otherwise nginx would hold the events back
        lines = lines_of(answer)
        wait_until(lambda: news.channel.readers == 1)
        news.channel.publish(ServerSentEvent(data={"text": "Ünï\n"}, name="created", id=7))
        assert [next(lines) for _ in range(3)] == ["event: created", "id: 7", 'data: {"text":"Ünï\\n"}']
        news.channel.publish(ServerSentEvent(data="one\r\ntwo\n"))
        assert [next(lines) for _ in range(3)] == ["data: one", "data: two", "data: "]


def test_a_client_that_reconnects_gets_missed_events(client: httpx.Client, news: News) -> None:
    """Events since `Last-Event-ID` come first; those published meanwhile come once."""
    news.missed = [ServerSentEvent(data=str(key), id=key) for key in (3, 4, 5)]
    with client.stream("GET", "/news", headers={"Last-Event-ID": "3"}) as answer:
        lines = lines_of(answer)
        assert [next(lines) for _ in range(4)] == ["id: 4", "data: 4", "id: 5", "data: 5"]
        for key in (5, 6):
            news.channel.publish(ServerSentEvent(data=str(key), id=key))
        assert [next(lines) for _ in range(2)] == ["id: 6", "data: 6"]


@pytest.mark.parametrize(("cache_control", "encoding"), [(None, None), ("no-cache", "gzip")])
def test_a_stream_is_only_compressed_on_request(
    client: httpx.Client, news: News, cache_control: str | None, encoding: str | None
) -> None:
    """In a compressed stream, too, each event arrives when it is published."""
    news.cache_control = cache_control
    with client.stream("GET", "/news", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers.get("Content-Encoding") == encoding
        unpack = zlib.decompressobj(31).decompress if encoding else bytes
        parts = answer.iter_raw()
        received = unpack(next(parts))
        wait_until(lambda: news.channel.readers == 1)
        news.channel.publish(ServerSentEvent(data="x"))
        while b"data: x\n\n" not in received:
            received += unpack(next(parts))


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_an_error_and_a_head_leave_no_reader(client: httpx.Client, news: News, method: str) -> None:
    """A HEAD request, and one whose `missed` fails, are answered like any other."""
    if method == "GET":
        news.missed = [ServerSentEvent(data="x", id="two\nlines")]
    answer = client.request(method, "/news", headers={"Last-Event-ID": "0"})
    assert answer.status_code == (200 if method == "HEAD" else 500)
    assert news.channel.readers == 0


def test_observers_see_each_stream_once(
    hosts: dict[str, tuple[RunningHost, News]], client: httpx.Client, news: News, lane: Lane
) -> None:
    """The request log has each stream once, like any other request."""

    def seen(name: str) -> int:
        return [each.request_id for each in news.seen].count(f"{name}-{lane}")

    with (
        hosts[lane.engine][0].client(scheme=lane.scheme, http2=lane.http2) as reader,
        reader.stream("GET", "/news", headers={"X-Request-ID": f"stream-{lane}"}),
    ):
        wait_until(lambda: seen("stream") == 1)
    wait_until(lambda: news.channel.readers == 0)
    client.head("/news", headers={"X-Request-ID": f"next-{lane}"})
    wait_until(lambda: seen("next") == 1)
    assert seen("stream") == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_heartbeat_keeps_an_idle_stream_open(scheme: str) -> None:
    """If nothing is published, a comment is sent at intervals."""
    with (
        running_host(distributions=[plugin_distribution("news", News(heartbeat=0.05))]) as host,
        host.client(scheme=scheme) as client,
        client.stream("GET", "/news") as answer,
    ):
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(4)] == ["retry: 2000", "", ":", ""]


def test_a_slow_reader_is_disconnected() -> None:
    """A stream that is read too slowly ends after its buffered events; other streams continue."""
    channel = EventChannel(buffer=3)
    slow, quick = iter(channel.open()), iter(channel.open())
    for parts in (slow, quick):
        next(parts)
        assert next(parts) == b""
    for number in range(5):
        channel.publish(ServerSentEvent(data=str(number)))
        assert next(quick) == b"data: %d\n\n" % number
        assert next(quick) == b""
    assert b"4" not in b"".join(slow)
    channel.close()
    assert list(quick) == []


@pytest.mark.parametrize("event", [{"name": "a\nb"}, {"id": "a\0b"}, {"id": "a\rdata: forged"}])
def test_an_event_cannot_forge_another(event: dict[str, str]) -> None:
    """A line break in a name or an id is refused."""
    with pytest.raises(ValueError, match="one line"):
        ServerSentEvent(data="x", **event).render()
