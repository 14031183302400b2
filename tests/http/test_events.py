"""Server-sent events reach all who read, on each engine, with everything around them, and hold no thread."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import until
from tests.http.table import Lane, route

from plughost import Observer, RouteGroup, hookimpl
from plughost.http import EventChannel, ServerSentEvent, send_events
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon
    import httpx

    from plughost import PluginContext, RequestRecord


class News:
    """A plugin with a channel."""

    def __init__(self, **options: Any) -> None:
        """Open it."""
        self.channel = EventChannel(**options)
        self.missed: list[ServerSentEvent] = []
        self.seen: list[RequestRecord] = []
        self.cache_control: str | None = None

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send what is published, after what was missed."""
        last = req.get_header("Last-Event-ID")
        if self.cache_control is not None:
            resp.set_header("Cache-Control", self.cache_control)
        send_events(resp, self.channel, missed=lambda: [each for each in self.missed if last and str(each.id) > last])

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/news", routes=(route("", self),))]

    @hookimpl
    def register_observers(self, context: PluginContext[Any]) -> list[Observer]:
        """See each request."""
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
    """The plugin on the lane's host, without readers and with nothing missed."""
    plugin = hosts[lane.engine][1]
    until(lambda: plugin.channel.readers == 0)
    plugin.missed, plugin.cache_control = [], None
    yield plugin
    until(lambda: plugin.channel.readers == 0)  # each was let go


@pytest.fixture
def client(hosts: dict[str, tuple[RunningHost, News]], lane: Lane, news: News) -> Iterator[httpx.Client]:
    """A client on the lane, which leaves before it is looked for readers."""
    with hosts[lane.engine][0].client(scheme=lane.scheme, http2=lane.http2) as opened:
        opened.headers["Accept-Encoding"] = "identity"
        yield opened


def lines_of(answer: httpx.Response) -> Iterator[str]:
    """Yield the lines of a stream but for what holds it open."""
    return (line for line in answer.iter_lines() if line and not line.startswith(("retry:", ":")))


def test_what_is_published_arrives_at_once(client: httpx.Client, news: News) -> None:
    """A reader gets each event as it is published, with its name, its id and its data line by line."""
    with client.stream("GET", "/news") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"  # or nginx would hold the events back
        lines = lines_of(answer)
        until(lambda: news.channel.readers == 1)
        news.channel.publish(ServerSentEvent(data={"text": "Ünï\n"}, name="created", id=7))
        assert [next(lines) for _ in range(3)] == ["event: created", "id: 7", 'data: {"text":"Ünï\\n"}']
        news.channel.publish(ServerSentEvent(data="one\r\ntwo\n"))
        assert [next(lines) for _ in range(3)] == ["data: one", "data: two", "data: "]


def test_a_client_that_comes_back_gets_what_it_missed(client: httpx.Client, news: News) -> None:
    """What was missed since `Last-Event-ID` comes first, and what is published meanwhile, too, comes once."""
    news.missed = [ServerSentEvent(data=str(key), id=key) for key in (3, 4, 5)]
    with client.stream("GET", "/news", headers={"Last-Event-ID": "3"}) as answer:
        lines = lines_of(answer)
        assert [next(lines) for _ in range(4)] == ["id: 4", "data: 4", "id: 5", "data: 5"]
        for key in (5, 6):
            news.channel.publish(ServerSentEvent(data=str(key), id=key))
        assert [next(lines) for _ in range(2)] == ["id: 6", "data: 6"]


@pytest.mark.parametrize(("cache_control", "encoding"), [(None, None), ("no-cache", "gzip")])
def test_a_stream_is_not_compressed_unless_it_says_so(
    client: httpx.Client, news: News, cache_control: str | None, encoding: str | None
) -> None:
    """Compressed by wish, each event arrives when it is published."""
    news.cache_control = cache_control
    with client.stream("GET", "/news", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers.get("Content-Encoding") == encoding
        unpack = zlib.decompressobj(31).decompress if encoding else bytes
        parts = answer.iter_raw()
        received = unpack(next(parts))
        until(lambda: news.channel.readers == 1)
        news.channel.publish(ServerSentEvent(data="x"))
        while b"data: x\n\n" not in received:
            received += unpack(next(parts))


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_an_error_and_a_head_leave_no_reader(client: httpx.Client, news: News, method: str) -> None:
    """A request without a body, and one whose `missed` fails, is answered as any other."""
    if method == "GET":
        news.missed = [ServerSentEvent(data="x", id="two\nlines")]
    answer = client.request(method, "/news", headers={"Last-Event-ID": "0"})
    assert answer.status_code == (200 if method == "HEAD" else 500)
    assert news.channel.readers == 0


def test_observers_see_each_stream_once(
    hosts: dict[str, tuple[RunningHost, News]], client: httpx.Client, news: News, lane: Lane
) -> None:
    """A stream is in the request log as any other request is, once."""

    def seen(name: str) -> int:
        return [each.request_id for each in news.seen].count(f"{name}-{lane}")

    with (
        hosts[lane.engine][0].client(scheme=lane.scheme, http2=lane.http2) as reader,
        reader.stream("GET", "/news", headers={"X-Request-ID": f"stream-{lane}"}),
    ):
        until(lambda: seen("stream") == 1)
    until(lambda: news.channel.readers == 0)
    client.head("/news", headers={"X-Request-ID": f"next-{lane}"})
    until(lambda: seen("next") == 1)
    assert seen("stream") == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_heartbeat_tells_that_all_is_well(scheme: str) -> None:
    """Where nothing is published a comment comes every so often."""
    with (
        running_host(distributions=[plugin_distribution("news", News(heartbeat=0.05))]) as host,
        host.client(scheme=scheme) as client,
        client.stream("GET", "/news") as answer,
    ):
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(4)] == ["retry: 2000", "", ":", ""]


def test_a_reader_that_falls_behind_is_let_go() -> None:
    """The stream of one that takes less than is published ends after what it had, and the others' don't."""
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
def test_an_event_can_forge_no_other(event: dict[str, str]) -> None:
    """A line break in a name or an id is refused."""
    with pytest.raises(ValueError, match="one line"):
        ServerSentEvent(data="x", **event).render()
