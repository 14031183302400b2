"""Streams pass through every layer of the host as Falcon and PEP 3333 define them, on each engine."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.http.table import route
from tests.lanes import LANES, Lane

from plughost import Middleware, RouteGroup, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

    from plughost import PluginContext

LINES = b"short line\n" * 100_000


class OnlyReads:
    """A stream with only `read` and `close`, which records the requested sizes."""

    def __init__(self, data: bytes) -> None:
        """Start at the beginning."""
        self._file = io.BytesIO(data)
        self.sizes: list[int] = []
        self.closed = 0

    def read(self, size: int) -> bytes:
        """Read as a file does."""
        self.sizes.append(size)
        return self._file.read(size)

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


class Iterable(OnlyReads):
    """Like `OnlyReads`, but iterable by lines like an open file."""

    def __iter__(self) -> Iterator[bytes]:
        """Fail: a file must be sent in blocks."""
        raise AssertionError("a file was sent line by line")


class Parts:
    """An iterable of parts without `read`."""

    def __init__(self, parts: list[bytes]) -> None:
        """Store the parts."""
        self._parts = parts
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        """Return an iterator of the parts."""
        return iter(self._parts)

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


Stream = OnlyReads | Parts


class Sends:
    """Answers with the test's stream."""

    stream: Stream = Parts([])
    length: int | None = None
    status = 200
    fails = False
    replacement: Stream | None = None

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send it."""
        resp.content_type = "text/plain"
        resp.status = self.status
        if self.length is None:
            resp.stream = self.stream  # type: ignore[assignment]  # Falcon takes any that reads or iterates
        else:
            resp.set_stream(self.stream, self.length)  # type: ignore[arg-type]  # Falcon's asks for less than it types
        if self.fails:
            raise ValueError("late")

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: object, succeeded: bool) -> None:
        """Send the test's replacement instead, if there is one, with a Content-Length of 3000."""
        if self.replacement is not None:
            resp.set_stream(self.replacement, 3000)  # type: ignore[arg-type]  # as above


class Plugin:
    """Mounts it."""

    def __init__(self) -> None:
        """Store the resource for the tests."""
        self.sends = Sends()

    @hookimpl
    def register_middleware(self, context: PluginContext[Any]) -> list[Middleware]:
        """Mount it as middleware of its own route, too."""
        return [Middleware(name="replaces", component=self.sends)]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/stream", routes=(route("", self.sends),))]


Served = tuple[RunningHost, Plugin]


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Served]]:
    """A host on each engine, with the access log and compression."""
    with ExitStack() as stack:
        running = {}
        for engine in ("waitress", "granian"):
            plugin = Plugin()
            settings = {
                "sites": {"main": {"http_engine": engine, "compression": {"encodings": ["gzip"]}}},
                "log": {"access": True},
            }
            distributions = [plugin_distribution("stream", plugin)]
            running[engine] = stack.enter_context(running_host(distributions=distributions, settings=settings)), plugin
        yield running


@pytest.fixture(params=LANES, ids=str)
def client(request: pytest.FixtureRequest, hosts: dict[str, Served], sends: Sends) -> Iterator[httpx.Client]:
    """A client on each lane, which requests no encoding by itself."""
    lane: Lane = request.param
    with hosts[lane.engine][0].client(scheme=lane.scheme, http2=lane.http2) as opened:
        opened.headers["Accept-Encoding"] = "identity"
        yield opened


@pytest.fixture
def sends(request: pytest.FixtureRequest, hosts: dict[str, Served]) -> Iterator[Sends]:
    """The resource of the lane's host, reset."""
    resource = hosts[request.getfixturevalue("request").node.callspec.params["client"].engine][1].sends
    yield resource
    resource.length, resource.status, resource.fails, resource.replacement = None, 200, False, None


def closed_once(client: httpx.Client, stream: Stream) -> bool:
    """Return whether a stream has been closed once when another request is answered."""
    client.get("/nothing")
    return stream.closed == 1


@pytest.mark.parametrize("kind", [OnlyReads, Iterable])
@pytest.mark.parametrize("with_length", [True, False])
def test_a_file_is_sent_in_large_blocks(
    client: httpx.Client, sends: Sends, kind: type[OnlyReads], with_length: bool
) -> None:
    """A stream with `read` is read 64 KiB at a time, never iterated, and closed once."""
    sends.stream = file = kind(LINES)
    sends.length = len(LINES) if with_length else None
    answer = client.get("/stream")
    assert answer.content == LINES
    assert answer.headers.get("Content-Length") == (str(len(LINES)) if with_length else None)
    assert min(file.sizes) >= 64 * 1024
    assert closed_once(client, file)


def test_an_iterable_is_sent_part_by_part(client: httpx.Client, sends: Sends) -> None:
    """A stream without `read` is iterated, and closed once."""
    sends.stream = parts = Parts([b"one ", b"", b"two"])
    assert client.get("/stream").content == b"one two"
    assert closed_once(client, parts)


@pytest.mark.parametrize("kind", [OnlyReads, Iterable])
def test_a_compressed_file_is_read_in_large_blocks(client: httpx.Client, sends: Sends, kind: type[OnlyReads]) -> None:
    """Compression reads a file in blocks like the server."""
    sends.stream, sends.length = kind(LINES), len(LINES)
    file = sends.stream
    with client.stream("GET", "/stream", headers={"Accept-Encoding": "gzip"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())) == LINES
    assert min(file.sizes) >= 64 * 1024
    assert closed_once(client, file)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_a_stream_that_is_not_sent_is_closed(client: httpx.Client, sends: Sends, method: str, status: int) -> None:
    """If a response has no body, its stream is closed unread."""
    sends.stream, sends.length, sends.status = OnlyReads(LINES), len(LINES), status
    file = sends.stream
    answer = client.request(method, "/stream")
    assert (answer.status_code, answer.content) == (status, b"")
    assert file.sizes == []
    assert closed_once(client, file)


def test_a_stream_of_a_request_that_failed_is_closed(client: httpx.Client, sends: Sends) -> None:
    """A stream that a responder prepared before it raised is closed, and the error is sent instead."""
    sends.stream, sends.length, sends.fails = OnlyReads(LINES), len(LINES), True
    file = sends.stream
    answer = client.get("/stream")
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal Server Error")
    assert file.sizes == []
    assert closed_once(client, file)


def test_no_more_is_sent_than_content_length_says(client: httpx.Client, sends: Sends) -> None:
    """A file longer than its Content-Length is cut there (PEP 3333), and the connection can be reused."""
    sends.stream, sends.length = OnlyReads(b"x" * 200_000), 100_000
    assert len(client.get("/stream").content) == 100_000
    sends.stream, sends.length = Parts([b"after"]), None
    assert client.get("/stream").content == b"after"


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_stream_of_middleware_is_limited_too(client: httpx.Client, sends: Sends, encoding: str) -> None:
    """What replaces a responder's stream ends at its Content-Length or is cut, too, compressed or not."""
    headers = {"Accept-Encoding": encoding}
    sends.replacement = Parts([b"x" * 2000, b"y" * 2000])
    assert client.get("/stream", headers=headers).content == b"x" * 2000 + b"y" * 1000
    sends.replacement = Parts([b"x" * 2000])
    with pytest.raises(httpx.TransportError):
        client.get("/stream", headers=headers)
    sends.replacement, sends.stream = None, Parts([b"after"])
    assert client.get("/stream").content == b"after"


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_stream_that_ends_before_its_content_length_is_cut(client: httpx.Client, sends: Sends, encoding: str) -> None:
    """No client takes a file that is shorter than its Content-Length for complete, compressed or not."""
    sends.stream, sends.length = OnlyReads(b"x" * 2000), 3000
    with pytest.raises(httpx.TransportError):
        client.get("/stream", headers={"Accept-Encoding": encoding})
    assert closed_once(client, sends.stream)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_content_length_that_is_no_number_is_500(client: httpx.Client, sends: Sends, method: str) -> None:
    """A mistake in a resource is reported as one: it neither breaks the connection nor sends an empty 200."""
    sends.stream, sends.length = OnlyReads(b"x" * 2000), -1
    assert client.request(method, "/stream").status_code == 500
    assert closed_once(client, sends.stream)
