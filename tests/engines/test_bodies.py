"""Request bodies arrive complete before the application is called, up to the limit."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
from shutil import which
from typing import TYPE_CHECKING

import h2.connection
import h2.events
import pytest
from tests.lanes import LANES

if TYPE_CHECKING:
    from pathlib import Path
    from wsgiref.types import WSGIApplication

    from tests.engines.conftest import Exchange, Gate, Serve, WaitUntil
    from tests.lanes import Lane

LIMIT = 10_000


def test_a_chunked_body_arrives_with_its_true_length(
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, exchange: Exchange
) -> None:
    """Chunks are joined, and CONTENT_LENGTH is their sum."""
    request = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    with serve(environ_app, http1_lane).connect() as connection:
        _, body = exchange(connection, request)
    assert b'"body": "abcde"' in body
    assert b'"CONTENT_LENGTH": "5"' in body
    assert b"TRANSFER_ENCODING" not in body


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_body_of_unknown_length_arrives(serve: Serve, lane: Lane, environ_app: WSGIApplication, method: str) -> None:
    """A body that is made as it is sent arrives complete; over HTTP/2 nothing announces its length."""
    seen = serve(environ_app, lane).client().request(method, "/", content=iter([b"ab", b"c" * 70_000, b"d"])).json()
    assert seen["CONTENT_LENGTH"] == "70003"
    assert len(seen["body"]) == 70_003


@pytest.mark.parametrize("size", [0, 1, 524_288, 524_289, 3_000_000])
def test_bodies_of_any_size_arrive_whole(serve: Serve, lane: Lane, counting_app: WSGIApplication, size: int) -> None:
    """Bodies in memory and bodies spooled to a file are read as they were sent."""
    client = serve(counting_app, lane, body_limit=4_000_000).client()
    assert client.post("/", content=b"x" * size).text == f"{size} of {size}"


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "unannounced"])
def test_a_body_that_a_full_disk_refuses_is_503(
    serve: Serve, lane: Lane, counting_app: WSGIApplication, caplog: pytest.LogCaptureFixture, announced: bool
) -> None:
    """The client is told to try again, and the log has the reason, without a traceback."""
    served = serve(counting_app, lane, body_limit=4_000_000)
    body = b"x" * 3_000_000
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        answer = served.client().post("/", content=body if announced else iter([body[:5], body[5:]]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    logged = "a request body can't be kept in a temporary file, in TMPDIR: [Errno 27] File too large"
    assert [line.message for line in caplog.records] == [logged]
    assert not caplog.records[0].exc_info
    assert served.client().post("/", content=body).text == "3000000 of 3000000"


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "unannounced"])
def test_a_body_at_the_limit_is_read_and_one_above_is_not(
    serve: Serve, lane: Lane, counting_app: WSGIApplication, announced: bool
) -> None:
    """Above the limit, the application sees an empty body and a too large CONTENT_LENGTH, and the client its 413."""
    served = serve(counting_app, lane, body_limit=LIMIT)
    for size, status in ((LIMIT, 200), (LIMIT + 1, 413), (3_000_000, 413), (LIMIT, 200)):
        body = b"x" * size
        answer = served.client().post("/", content=body if announced else iter([body[:5], body[5:]]))
        assert answer.status_code == status, size
        if status == 413:
            read, _, said = answer.text.partition(" of ")
            assert read == "0"
            assert int(said) > LIMIT


def test_small_chunks_do_not_count_their_framing(
    serve: Serve, http1_lane: Lane, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """A body within the limit is accepted, whatever the size of its chunks."""
    chunks = b"1;some=extension\r\nx\r\n" * 1000
    request = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    with serve(counting_app, http1_lane, body_limit=1000).connect() as connection:
        response, body = exchange(connection, request)
    assert (response.status, body) == (200, b"1000 of 1000")


def test_a_client_that_is_still_sending_sees_the_413(
    serve: Serve, http1_lane: Lane, counting_app: WSGIApplication
) -> None:
    """A client that sends its whole body before it reads finds the 413, not a connection reset."""
    with serve(counting_app, http1_lane, body_limit=LIMIT).connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n")
        for _ in range(80):
            connection.sendall(b"x" * 100_000)
        assert connection.recv(12) == b"HTTP/1.1 413"


def test_the_connection_ends_cleanly_after_a_refused_body(
    serve: Serve, http1_lane: Lane, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """The bytes after a refused body are not parsed as a request."""
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n"
    with serve(counting_app, http1_lane, body_limit=LIMIT).connect() as connection:
        response, _ = exchange(connection, request + smuggled)
        assert (response.status, response.getheader("Connection")) == (413, "close")
        connection.shutdown(socket.SHUT_WR) if http1_lane.scheme == "http" else None
        assert connection.recv(1) == b""


def test_a_refused_body_that_never_arrives_keeps_no_connection(
    serve: Serve, http1_lane: Lane, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """Every client of a crowd is answered, and its connection is closed soon, whatever thread receives it."""
    served = serve(counting_app, http1_lane, body_limit=LIMIT)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(served.connect()) for _ in range(40)]
        for connection in opened:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n")
        for connection in opened:
            assert exchange(connection, b"")[0].status == 413
        for connection in opened:
            assert connection.recv(1) == b""


@pytest.mark.parametrize("options", [[], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]], ids=str)
def test_curl_sees_the_413(
    serve: Serve, lane: Lane, counting_app: WSGIApplication, tmp_path: Path, options: list[str]
) -> None:
    """curl, which sends Expect: 100-continue, prints the status."""
    if which("curl") is None:
        pytest.skip("curl is not installed")
    (tmp_path / "big").write_bytes(bytes(5_000_000))
    served = serve(counting_app, lane, body_limit=LIMIT)
    version = "--http2" if lane.http2 else "--http1.1"
    command = ["curl", "-sS", version, "--cacert", str(served.certificate)]
    command += ["-o", str(tmp_path / "out"), "-w", "%{http_code}", *options, "-T", str(tmp_path / "big")]
    done = subprocess.run([*command, f"{served.url}/"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("413", 0), done.stderr


def test_expect_continue_is_answered_before_the_body_is_sent(
    serve: Serve, http1_lane: Lane, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """A client that waits for 100 gets it, then sends its body."""
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with serve(counting_app, http1_lane).connect() as connection:
        connection.sendall(head)
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        response, body = exchange(connection, b"abc")
    assert (response.status, body) == (200, b"3 of 3")


def test_expect_continue_without_a_body_is_answered(
    serve: Serve, http1_lane: Lane, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """A request with Expect: 100-continue and no body does not hang."""
    with serve(counting_app, http1_lane).connect() as connection:
        response, _ = exchange(
            connection, b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"
        )
    assert response.status == 200


def test_the_limit_can_be_changed_while_serving(serve: Serve, lane: Lane, counting_app: WSGIApplication) -> None:
    """A new limit applies to the next request."""
    served = serve(counting_app, lane, body_limit=10)
    assert served.client().post("/", content=b"x" * 20).status_code == 413
    served.engine.set_body_limit(20)
    assert served.client().post("/", content=b"x" * 20).status_code == 200


def test_an_incomplete_body_reaches_no_application(
    serve: Serve, http1_lane: Lane, gate: Gate, wait_until: WaitUntil
) -> None:
    """A client that disconnects in the middle of its body is dropped, and the next one is served."""
    served = serve(gate, http1_lane)
    with served.connect() as connection:
        connection.sendall(b"POST /held HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
    assert served.client().get("/after").text == "/after"
    assert not gate.entered.acquire(blocking=False)


def test_a_cancelled_body_reaches_no_application(serve: Serve, gate: Gate) -> None:
    """A body shorter than declared is incomplete, even if its client cancels it with NO_ERROR."""
    served = serve(gate, LANES[3])
    client = h2.connection.H2Connection()
    client.initiate_connection()
    request = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost")]
    for stream in range(1, 41, 2):
        client.send_headers(stream, [*request, (":path", "/held"), ("content-length", "10")])
        client.send_data(stream, b"abc")
        client.reset_stream(stream, error_code=0)
    client.send_headers(41, [*request, (":path", "/after")], end_stream=True)
    events: list[h2.events.Event] = []
    with served.connect(protocol="h2") as connection:
        connection.sendall(client.data_to_send())
        while not any(isinstance(event, h2.events.StreamEnded) for event in events):
            events = client.receive_data(connection.recv(65536))
    assert not gate.entered.acquire(blocking=False)
