"""Responses arrive as the application sends them, and never look complete if they are not."""

from __future__ import annotations

import asyncio
import http.client
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from plughost._servers.base import CutOffError
from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Environ, Exchange, Gate, Serve, Served
    from tests.lanes import Lane

Headers = list[tuple[str, str]]

PLAIN: Headers = [("Content-Type", "text/plain")]


class Parts:
    """An iterable of parts that records how often and in which thread it was closed."""

    def __init__(self, parts: Iterable[bytes], gate: threading.Event | None = None) -> None:
        """Store the parts; with a gate, wait for it after the first part."""
        self.parts = iter(parts)
        self.gate = gate
        self.closed: list[str] = []
        self.done = threading.Event()
        self.first = True

    def __iter__(self) -> Parts:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next part."""
        if not self.first and self.gate is not None:
            assert self.gate.wait(20)
        self.first = False
        return next(self.parts)

    def close(self) -> None:
        """Record the call."""
        self.closed.append(threading.current_thread().name)
        self.done.set()


def answer_with(parts: Iterable[bytes], headers: Headers = PLAIN, status: str = "200 OK") -> WSGIApplication:
    """Return an application that answers with the given iterable."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, list(headers))
        return parts

    return application


def fail_after(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield parts, then fail."""
    yield from parts
    raise RuntimeError("secret")


def test_a_response_arrives_part_by_part(serve: Serve, lane: Lane) -> None:
    """The first part can be read while the application still produces the second."""
    gate = threading.Event()
    client = serve(answer_with(Parts([b"one", b"two"], gate)), lane).client()
    with client.stream("GET", "/") as answer:
        received = answer.iter_raw()
        assert next(received) == b"one"
        gate.set()
        assert b"".join(received) == b"two"


def test_a_long_response_arrives_complete(serve: Serve, lane: Lane) -> None:
    """Ten megabytes in uneven parts, with empty ones between them, arrive in order."""
    parts = [bytes([number % 256]) * (number * 37 % 20_000) for number in range(1000)]
    assert serve(answer_with(iter(parts)), lane).client().get("/").content == b"".join(parts)


@pytest.mark.parametrize("body", [[], [b""], [b"one"], [b"one", b"two"], (b"a", b"", b"b")], ids=str)
def test_a_list_is_sent_with_its_length(serve: Serve, lane: Lane, body: list[bytes] | tuple[bytes, ...]) -> None:
    """A body that is already complete needs no chunks."""
    answer = serve(answer_with(body), lane).client().get("/")
    assert answer.content == b"".join(body)
    if answer.content and (lane.engine == "granian" or len(body) == 1):
        assert answer.headers["Content-Length"] == str(len(b"".join(body)))


def test_write_conforms_to_pep_3333(serve: Serve, lane: Lane) -> None:
    """Data from start_response's `write` comes before the returned body."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        write = start_response("200 OK", PLAIN)
        write(b"one ")
        write(b"two ")
        return [b"three"]

    assert serve(application, lane).client().get("/").text == "one two three"


def test_the_iterable_is_closed_once_after_its_end(serve: Serve, lane: Lane) -> None:
    """`close` is called once, in a worker thread."""
    parts = Parts([b"a", b"b"])
    assert serve(answer_with(parts), lane).client().get("/").text == "ab"
    assert parts.done.wait(20)
    assert len(parts.closed) == 1
    assert parts.closed[0] != threading.current_thread().name


def test_a_disconnect_stops_the_iteration(serve: Serve, lane: Lane) -> None:
    """An endless response ends after the client's disconnect, and its iterable is closed once."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 10_000

    parts = Parts(endless())
    served = serve(answer_with(parts), lane)
    client = served.client()
    with client.stream("GET", "/") as answer:
        next(answer.iter_raw())
    client.close()
    assert parts.done.wait(20)
    assert len(parts.closed) == 1


def test_a_client_that_reads_nothing_holds_no_thread_for_ever(serve: Serve, http1_lane: Lane) -> None:
    """A response that nobody reads is aborted after the idle time-out."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 1_000_000

    parts = Parts(endless())
    with serve(answer_with(parts), http1_lane, idle_timeout=1).connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert parts.done.wait(20)


def test_an_error_before_the_response_is_a_generic_500(serve: Serve, lane: Lane) -> None:
    """The client gets generic problem details with a request id, and the connection still works."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        raise RuntimeError("secret")

    client = serve(application, lane).client()
    for _ in range(2):
        answer = client.get("/", headers={"X-Request-ID": "my-id"})
        assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
        assert (answer.headers["X-Request-ID"], answer.headers["X-Content-Type-Options"]) == ("my-id", "nosniff")
        assert answer.json()["status"] == 500
        assert "secret" not in answer.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, BaseException])
def test_an_application_cannot_end_the_engine(
    serve: Serve, lane: Lane, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """If an application calls sys.exit or is cancelled, this is logged and answered with 500, each time."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        raise error

    client = serve(application, lane, threads=1).client()
    assert [client.get("/").status_code for _ in range(3)] == [500, 500, 500]
    assert caplog.text.count("\n    raise error\n") == 3


@pytest.mark.parametrize("length", [[], [("Content-Length", "1000000")]], ids=["unknown length", "known length"])
@pytest.mark.parametrize("parts", [[b"some"], [b"x" * 100_000] * 5], ids=["short", "long"])
def test_an_error_in_the_middle_cuts_the_response(
    serve: Serve, lane: Lane, length: Headers, parts: list[bytes]
) -> None:
    """No client mistakes an incomplete response for a complete one."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", PLAIN + length)
        return fail_after(parts)

    with pytest.raises(httpx.TransportError):
        serve(application, lane).client().get("/")


def test_an_error_in_one_response_does_not_affect_others(serve: Serve, lane: Lane, gate: Gate) -> None:
    """A simultaneous request is answered, over HTTP/2 on the same connection."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/fail":
            start_response("200 OK", PLAIN)
            return fail_after([b"some"])
        return gate(environ, start_response)

    async def ask(served: Served) -> str:
        async with served.sharing_client() as client:
            held = asyncio.create_task(client.get("/held"))
            await asyncio.to_thread(gate.wait_until_entered)
            with pytest.raises(httpx.TransportError):
                await client.get("/fail")
            gate.opened.set()
            return (await held).text

    assert asyncio.run(ask(serve(application, lane))) == "/held"


@pytest.mark.parametrize("headers", [[], [("Content-Length", "5")]], ids=["no length", "length"])
def test_head_has_headers_and_no_body(serve: Serve, http1_lane: Lane, headers: Headers, exchange: Exchange) -> None:
    """The connection can be used after a HEAD, or is closed; no bytes of a body arrive."""
    with serve(answer_with([b"hello"], PLAIN + headers), http1_lane).connect() as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_statuses_without_a_body_keep_the_connection(serve: Serve, lane: Lane, status: str) -> None:
    """204 and 304 end with their headers."""
    client = serve(answer_with([], [("ETag", '"x"')], status), lane).client()
    assert [str(client.get("/").status_code) for _ in range(3)] == [status[:3]] * 3


@pytest.mark.parametrize(
    ("method", "status", "body"),
    [
        ("DELETE", "204 No Content", []),
        ("GET", "304 Not Modified", []),
        ("HEAD", "200 OK", []),
        ("GET", "200 OK", iter([b"of unknown ", b"length"])),
    ],
    ids=["204", "304", "HEAD", "stream"],
)
def test_a_response_without_a_length_keeps_the_connection(
    serve: Serve, http1_lane: Lane, method: str, status: str, body: Iterable[bytes]
) -> None:
    """A client that deletes, revalidates or reads a stream can use its connection for the next request."""
    with serve(answer_with(body, status=status), http1_lane).connect() as connection:
        for _ in range(2):
            connection.sendall(f"{method} / HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            response = http.client.HTTPResponse(connection, method=method)
            response.begin()
            assert response.status == int(status[:3])
            assert not response.will_close
            response.read()


@pytest.mark.parametrize(
    ("version", "wish", "closes"),
    [
        ("1.1", "", False),
        ("1.1", "close", True),
        ("1.1", "TE, Close", True),
        ("1.0", "", True),
        ("1.0", "keep-alive", False),
    ],
)
def test_a_connection_ends_when_the_client_asks_for_it(
    serve: Serve, http1_lane: Lane, version: str, wish: str, closes: bool
) -> None:
    """`close` is respected among other options; HTTP/1.0 closes unless asked to keep the connection (RFC 9112 9.3)."""
    request = f"GET / HTTP/{version}\r\nHost: h\r\n" + (f"Connection: {wish}\r\n" if wish else "") + "\r\n"
    with serve(answer_with([b"x"]), http1_lane).connect() as connection:
        connection.sendall(request.encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.read(), response.will_close) == (b"x", closes)


@pytest.mark.parametrize(
    "headers",
    [
        [("Connection", "close")],
        [("Transfer-Encoding", "chunked")],
        [("X-Split", "a\r\nX-Evil: 1")],
        [("X-Evil A:", "1")],
        [("", "1")],
    ],
    ids=str,
)
def test_forbidden_response_headers_are_refused(serve: Serve, lane: Lane, headers: Headers) -> None:
    """Hop-by-hop headers, line breaks and invalid names are a 500 (PEP 3333), not a response."""
    answer = serve(answer_with([b"x"], headers), lane).client().get("/")
    assert answer.status_code == 500
    assert "X-Evil" not in str(answer.headers)


@pytest.mark.parametrize("status", ["100 Continue", "101 Switching Protocols", "000 Nothing", "fine"])
def test_a_response_ends_with_a_final_status(serve: Serve, lane: Lane, status: str) -> None:
    """An informational status would leave the client waiting; like an invalid status, it is a 500."""
    assert serve(answer_with([b"x"], status=status), lane).client().get("/").status_code == 500


def test_repeated_response_headers_stay_separate(serve: Serve, lane: Lane) -> None:
    """Two Set-Cookie fields stay two."""
    headers = [*PLAIN, ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    answer = serve(answer_with([b"x"], headers), lane).client().get("/")
    assert answer.headers.get_list("Set-Cookie") == ["a=1", "b=2"]


def test_the_server_names_no_version(serve: Serve, lane: Lane) -> None:
    """The Server header contains only the host's name."""
    assert serve(answer_with([b"x"]), lane).client().get("/").headers["Server"] == "plughost"


def test_a_connection_serves_request_after_request(serve: Serve, http1_lane: Lane) -> None:
    """HTTP/1.1 connections are kept alive."""
    served = serve(answer_with([b"x"], [*PLAIN, ("Content-Length", "1")]), http1_lane)
    with served.connect() as connection:
        for _ in range(20):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert response.read() == b"x"


def test_pipelined_requests_are_answered_in_order(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """Requests that a client sends without waiting are answered one after the other."""
    with serve(gate, http1_lane).connect() as connection:
        connection.sendall(b"".join(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % n for n in range(10)))
        received = b""
        while not received.endswith(b"/9"):
            received += connection.recv(65536)
    bodies = [part.rpartition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"/%d" % n for n in range(10)]


def test_waitress_answers_in_the_receiving_thread(serve: Serve) -> None:
    """Another thread would have to wait for the interpreter lock while this one polls."""

    def name(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [threading.current_thread().name.encode()]

    served = serve(name)
    client = served.client()
    assert {client.get("/").text for _ in range(20)} == {f"waitress-{served.engine.port}"}


def test_a_slow_stream_arrives_complete(lane: Lane, serve: Serve) -> None:
    """It becomes slow just as its client begins to be monitored, which must not cut it off."""

    def parts() -> Iterator[bytes]:
        for _ in range(20):
            about_to_wait(long=True)
            yield b"part "

    def application(environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", list(PLAIN))
        return parts()

    with serve(application, lane).client() as client:
        for content in (None, b"body") * 100:
            assert client.request("POST" if content else "GET", "/", content=content).text == "part " * 20


def test_a_body_whose_iteration_and_close_fail_is_cut_off(serve: Serve, lane: Lane) -> None:
    """Its client does not wait for an end that never comes."""

    class Fails(Parts):
        def close(self) -> None:
            super().close()
            raise RuntimeError("secret")

    def parts() -> Iterator[bytes]:
        yield b"one"
        raise CutOffError

    body = Fails(parts())
    with pytest.raises(httpx.RemoteProtocolError), serve(answer_with(body), lane).client() as client:
        client.get("/")
    assert len(body.closed) == 1
