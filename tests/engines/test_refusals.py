"""Requests that HTTP does not allow never reach an application; they are answered with problem details."""

from __future__ import annotations

import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engines.conftest import Exchange, Gate, Serve
    from tests.lanes import Lane

HOST = b"Host: h\r\n"
MALFORMED = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "empty host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "negative length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\nabc",
    "signed length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +3\r\n\r\nabc",
    "space before colon": b"GET / HTTP/1.1\r\n" + HOST + b"X : 1\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\n" + HOST + b"nonsense\r\n\r\n",
    "noise": b"\x00\x01\x02 noise\r\n\r\n",
    "bad chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "negative chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
    "bad second chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0x2\r\n",
    "target without a slash": b"GET x HTTP/1.1\r\n" + HOST + b"\r\n",
    "target of an authority": b"GET h:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "target of an asterisk": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "length of 5000 digits": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nx",
    "length of 5000 zeros": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"0" * 5000 + b"\r\n\r\n",
    "gzip and chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "something chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked and then gzip": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n"
    ),
    "chunked with a parameter": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "target not in ASCII": b"GET /\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "target not in ASCII, with two slashes": b"GET //\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "query not in ASCII": b"GET /a?b=\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "angle in a path": b"GET /<a> HTTP/1.1\r\n" + HOST + b"\r\n",
    "backtick in a path": b"GET /`a` HTTP/1.1\r\n" + HOST + b"\r\n",
    "angle in a query": b"GET /a?b=<c> HTTP/1.1\r\n" + HOST + b"\r\n",
    "quote in a query": b'GET /a?b="c" HTTP/1.1\r\n' + HOST + b"\r\n",
    "absolute without authority": b"GET http:///a HTTP/1.1\r\n" + HOST + b"\r\n",
    "bracket in an authority": b"GET http://h]/a HTTP/1.1\r\n" + HOST + b"\r\n",
}
WAITRESS_ONLY = {  # hyper, below granian, repairs some of these, and answers others without a body
    "length and coding": (
        400,
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "folded": (400, b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\r\n 2\r\n\r\n"),
    "bare LF": (400, b"GET / HTTP/1.1\nHost: h\n\n"),
    "bare LF before it": (400, b"\nGET / HTTP/1.1\r\n" + HOST + b"\r\n"),
    "bare LF after an empty line": (400, b"\r\n\nGET / HTTP/1.1\r\n" + HOST + b"\r\n"),
    "bare CR before it": (400, b"\rGET / HTTP/1.1\r\n" + HOST + b"\r\n"),
    "bare CR in a header that doesn't end": (400, b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\rY"),
    "bare LF after its line": (400, b"GET / HTTP/1.1\n\r\n" + HOST + b"\r\n"),
    "bare LF and a space after its line": (400, b"GET / HTTP/1.1\n \r\n" + HOST + b"\r\n"),
    "bare CR after its line": (400, b"GET / HTTP/1.1\r\r\n" + HOST + b"\r\n"),
    "space before it": (400, b" GET / HTTP/1.1\r\n" + HOST + b"\r\n"),
    "bare LF in a header": (400, b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\nY: 2\r\n\r\n"),
    "unknown coding": (400, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n"),
    "coding in 1.0": (400, b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "coding twice": (
        400,
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "version 2.0": (505, b"GET / HTTP/2.0\r\n" + HOST + b"\r\n"),
    "large header": (431, b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 70_000 + b"\r\n\r\n"),
    "101 header lines": (431, b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\r\n" * 100 + b"\r\n"),
    "no address in brackets": (400, b"GET http://[h]/a HTTP/1.1\r\n" + HOST + b"\r\n"),
    "control character": (400, b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n"),
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests_are_400(
    serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange, request_bytes: bytes
) -> None:
    """RFC 9112 sections 3.2, 5.1 and 6.3; the connection is closed, and the next one is served."""
    served = serve(gate, http1_lane)
    with served.connect() as connection:
        response, _ = exchange(connection, request_bytes)
        assert response.status == 400
        assert connection.recv(1) == b""
    assert served.client().get("/next").text == "/next"


@pytest.mark.parametrize(("status", "request_bytes"), WAITRESS_ONLY.values(), ids=WAITRESS_ONLY)
def test_waitress_refuses_with_problem_details(
    serve: Serve, gate: Gate, exchange: Exchange, status: int, request_bytes: bytes
) -> None:
    """The body follows RFC 9457, names nothing internal, and the response has the usual headers."""
    with serve(gate).connect() as connection:
        response, body = exchange(connection, request_bytes)
    problem = json.loads(body)
    assert (response.status, problem["status"]) == (status, status)
    assert (set(problem), problem["type"]) == ({"type", "title", "status", "detail"}, "about:blank")
    assert response.getheader("Content-Type") == "application/problem+json"
    assert response.getheader("X-Content-Type-Options") == "nosniff"
    assert response.getheader("X-Request-ID")


@pytest.mark.parametrize("name", ["empty host", "two hosts"])
def test_the_adapter_refuses_with_problem_details(
    serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange, name: str
) -> None:
    """A request that hyper accepts and we refuse gets the usual answer; the request id is kept."""
    request = MALFORMED[name].replace(b"\r\n", b"\r\nX-Request-ID: kept-1\r\n", 1)
    with serve(gate, http1_lane).connect() as connection:
        response, body = exchange(connection, request)
    assert json.loads(body)["status"] == 400
    assert response.getheader("Content-Type") == "application/problem+json"
    assert response.getheader("X-Request-ID") == "kept-1"


GRANIAN_ITSELF = {  # as docs/operators/serving.md and docs/api-clients/README.md list them
    "no colon": (400, MALFORMED["no colon"]),
    "two lengths": (400, MALFORMED["two lengths"]),
    "noise": (400, MALFORMED["noise"]),
    "folded": (400, WAITRESS_ONLY["folded"][1]),
    "unknown coding": (400, WAITRESS_ONLY["unknown coding"][1]),
    "long address": (414, b"GET /" + b"x" * 65_536 + b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    "101 header lines": WAITRESS_ONLY["101 header lines"],
}


@pytest.mark.parametrize("name", GRANIAN_ITSELF)
def test_granian_itself_answers_requests_that_it_cannot_parse(
    serve: Serve, https_lane: Lane, gate: Gate, exchange: Exchange, name: str
) -> None:
    """The answer has no body and lacks the host's headers; the documentation lists these requests."""
    with serve(gate, https_lane).connect() as connection:
        status, request = GRANIAN_ITSELF[name]
        response, body = exchange(connection, request)
    assert (response.status, body, response.getheader("X-Request-ID")) == (status, b"", None)


def test_an_address_over_8_kib_is_refused(serve: Serve, lane: Lane, gate: Gate) -> None:
    """Responses repeat the address in links, so their headers would grow with it; at the limit it is accepted."""
    client = serve(gate, lane).client()
    assert client.get("/?" + "x" * (8192 - 2)).status_code == 200
    answer = client.get("/?" + "x" * (8192 - 1))
    assert (answer.status_code, answer.json()["title"]) == (414, "URI Too Long")


def test_a_refused_head_has_no_body(serve: Serve, lane: Lane, gate: Gate) -> None:
    """It has only the headers of the refusal; over HTTP/2, a body would make the response malformed."""
    client = serve(gate, lane).client()
    answer = client.head("/?" + "x" * 8192)
    assert (answer.status_code, answer.headers["Content-Type"]) == (414, "application/problem+json")
    assert answer.content == b""


def test_an_address_is_scanned_only_once(serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange) -> None:
    """Its content doesn't matter: nobody else is answered meanwhile."""
    served = serve(gate, http1_lane)

    def ask() -> None:
        for _ in range(40):
            with served.connect() as connection:
                response, _ = exchange(connection, b"GET /" + b"?" * 60_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            assert response.status == 414

    with ThreadPoolExecutor(1) as thread:
        thread.submit(ask).result(20)


SLOW_HEADS = {
    "spaces before a value": (200, b"GET / HTTP/1.1\r\n" + HOST + b"X:" + b" " * 60_000 + b"x\r\n\r\n"),
    "authority without a version": (400, b"GET a://" + b"9" * 30_000 + b" x\r\n" + HOST + b"\r\n"),
}


@pytest.mark.parametrize("name", SLOW_HEADS)
def test_no_head_takes_long_to_parse(serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange, name: str) -> None:
    """A single request with one of these heads kept the whole host busy for half a minute or more."""
    status, request = SLOW_HEADS[name]
    served = serve(gate, http1_lane)

    def ask() -> None:
        for _ in range(5):
            with served.connect() as connection:
                response, _ = exchange(connection, request)
            assert response.status == status

    with ThreadPoolExecutor(1) as thread:
        thread.submit(ask).result(20)


def test_100_header_lines_are_accepted(serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange) -> None:
    """So many are allowed on both engines."""
    with serve(gate, http1_lane).connect() as connection:
        response, _ = exchange(connection, b"GET / HTTP/1.1\r\n" + HOST + b"X: 1\r\n" * 99 + b"\r\n")
    assert response.status == 200


def test_large_headers_are_refused(serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange) -> None:
    """Header lines of 128 KiB are 431 on both engines."""
    served = serve(gate, http1_lane)
    begin = b"GET / HTTP/1.1\r\n" + HOST + b"X: "
    with served.connect() as connection:  # exactly as much: if the server leaves bytes unread, it resets the connection
        response, _ = exchange(connection, begin + b"x" * (131_072 - len(begin)))
    assert response.status == 431
    assert served.client().get("/next").text == "/next"


RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


@pytest.mark.parametrize(
    "request_bytes",
    [b"BAD\r\n\r\n", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhelloBAD\r\n\r\n"],
    ids=["refused", "refused behind another"],
)
def test_a_client_that_resets_its_connection_is_no_error(
    serve: Serve, http1_lane: Lane, gate: Gate, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    """After its disconnect, whether or not its request was refused, nothing is logged and the next one is served."""
    served = serve(gate, http1_lane)
    for number in range(60):
        connection = served.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.sendall(request_bytes)
        connection.recv(number % 2)  # at once, or in the middle of the answer
        connection.close()
    assert served.client().get("/next").text == "/next"
    assert caplog.records == []


def test_a_half_closed_client_is_no_error(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """A connection that is opened and closed without data leaves nothing behind."""
    served = serve(gate, http1_lane)
    for _ in range(20):
        served.connect().close()
    assert served.client().get("/next").text == "/next"
