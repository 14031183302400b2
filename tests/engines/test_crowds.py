"""Clients that idle, dawdle or stall leave the others served."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import resource
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import h2.connection
import h2.events
import h2.settings
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Environ, Exchange, Gate, Lane, Serve, Served, Until

IDLE, HALF_SENT, SLOW_BODIES = 1100, 500, 20


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Make room for the connections of both sides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 3 * IDLE
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            pytest.skip(f"this process may open {hard} files only, {needed} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(served: Served, connections: int) -> list[socket.socket]:
    """Open so many connections, without a TLS handshake."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.engine.port), timeout=20))
            for _ in range(connections)
        ]
        stack.pop_all()
        return opened


def ends(connection: socket.socket) -> bool:
    """Read what comes, and return whether the server has closed the connection before 20 s passed without a word."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def assert_served(served: Served) -> None:
    """Check that new clients are answered, more of them than there are threads."""
    for number in range(8):
        assert served.client().get(f"/other{number}").text == f"/other{number}"


def test_idle_connections_leave_others_served(serve: Serve, lane: Lane, gate: Gate, descriptors: None) -> None:
    """1100 connections that say nothing, over TLS not even a handshake."""
    served = serve(gate, lane)
    opened = connect(served, IDLE)
    assert_served(served)
    for connection in opened:
        connection.close()


def test_half_sent_headers_leave_others_served(serve: Serve, lane: Lane, gate: Gate, descriptors: None) -> None:
    """500 requests whose header never ends, after the handshake where there is one."""
    served = serve(gate, lane)
    opened = [served.connect() for _ in range(HALF_SENT)]
    for connection in opened:
        connection.sendall(b"GET /never HTTP/1.1\r\nHost: h\r\nX-Half")
    assert_served(served)
    for connection in opened:
        connection.close()


def test_slow_bodies_hold_no_thread(serve: Serve, lane: Lane, gate: Gate) -> None:
    """20 bodies that never end, and four threads."""
    served = serve(gate, lane)
    opened = [served.connect() for _ in range(SLOW_BODIES)]
    for connection in opened:
        connection.sendall(b"POST /never HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx")
    assert_served(served)
    for connection in opened:
        connection.close()


def test_readers_that_take_nothing_hold_no_thread(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """Forty of HTTP/1.1, and a hundred streams of an HTTP/2 connection without a window, and four threads."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/other"):
            return gate(environ, start_response)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return itertools.repeat(b"x" * 100_000)

    served = serve(application, https_lane)
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(served.connect()).sendall(b"GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        greedy = stack.enter_context(served.connect(protocol="h2"))
        http2 = h2.connection.H2Connection()
        http2.initiate_connection()
        http2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        greedy.sendall(http2.data_to_send())
        acknowledged = 0
        while acknowledged < 2:
            events = http2.receive_data(greedy.recv(65536))
            acknowledged += sum(isinstance(event, h2.events.SettingsAcknowledged) for event in events)
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/endless")]
        for _ in range(100):
            http2.send_headers(http2.get_next_available_stream_id(), fields, end_stream=True)
        greedy.sendall(http2.data_to_send())
        answered = 0
        while answered < 100:
            events = http2.receive_data(greedy.recv(65536))
            answered += sum(isinstance(event, h2.events.ResponseReceived) for event in events)
        assert_served(served)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /half HTTP/1.1\r\nHost:",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
        b"GET /done HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
    ids=["nothing", "half a header", "half a body", "a whole request"],
)
def test_a_connection_that_stays_silent_is_closed(serve: Serve, lane1: Lane, gate: Gate, said: bytes) -> None:
    """After the idle time-out the server closes it, whatever was said before."""
    with serve(gate, lane1, idle_timeout=1).connect() as connection:
        connection.sendall(said)
        assert ends(connection)


def test_a_body_that_takes_too_long_is_given_up(serve: Serve, lane1: Lane, gate: Gate) -> None:
    """However regularly a byte of it comes."""
    with serve(gate, lane1, idle_timeout=10, body_timeout=1).connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n")
        connection.settimeout(0.1)
        for _ in range(200):
            with contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                received = connection.recv(65536)
                assert received == b"" or received.startswith(b"HTTP/1.1 408")
                break
            try:
                connection.sendall(b"x")
            except ConnectionError:
                break
        else:
            pytest.fail("it was still waited for")
    assert not gate.entered.acquire(blocking=False)


def test_a_connection_without_a_handshake_is_closed(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """A TLS client that never begins is sent away."""
    (connection,) = connect(serve(gate, https_lane, idle_timeout=1), 1)
    with connection, contextlib.suppress(ConnectionError):
        assert connection.recv(1) == b""


def test_a_long_request_outlives_the_idle_time_out(serve: Serve, lane: Lane, gate: Gate, until: Until) -> None:
    """A connection that waits for its answer is not idle."""
    served = serve(gate, lane, idle_timeout=1)
    with served.connect() as idle:
        responses: list[str] = []
        waiting = threading.Thread(target=lambda: responses.append(served.client().get("/held").text))
        waiting.start()
        gate.wait_until_entered()
        with contextlib.suppress(ConnectionError):
            assert idle.recv(1) == b""
        with served.connect() as later, contextlib.suppress(ConnectionError):
            assert later.recv(1) == b""
    gate.opened.set()
    waiting.join(20)
    assert responses == ["/held"]


@pytest.mark.parametrize("days", [1, -1], ids=["ahead", "back"])
def test_setting_the_clock_closes_no_connection(
    serve: Serve, lane1: Lane, environ_app: WSGIApplication, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Idle times don't follow the time of day: who has just asked may ask again."""
    served = serve(environ_app, lane1, idle_timeout=40)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", 0)) as client:
        client.sock = served.connect()
        for clock in (time.time, lambda: time.time_ns() / 1e9 + days * 86400):
            monkeypatch.setattr(time, "time", clock)
            assert served.client().get("/other").status_code == 200
            client.request("GET", "/asked")
            assert client.getresponse().read()


def test_setting_the_clock_back_keeps_no_connection(
    serve: Serve, lane1: Lane, gate: Gate, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is idle is closed in time, whatever the time of day is meanwhile."""
    with serve(gate, lane1, idle_timeout=1).connect() as connection:
        assert exchange(connection, b"GET /asked HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/asked"
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 - 86400)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_the_newest_bodies_of_whoever_holds_most_are_refused(
    serve: Serve,
    lane1: Lane,
    counting_app: WSGIApplication,
    exchange: Exchange,
    until: Until,
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When unfinished bodies take too much memory: 503, one line in the log, and all others arrive."""
    served = serve(counting_app, lane1, body_memory=5 * 16 * 1024)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx"
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(served.connect(source)) for source in ("127.0.0.1",) * 5 + ("127.0.0.2",)]
        for connection in opened:
            connection.sendall(head)
        until(lambda: caplog.records)
        answers = []
        for connection in opened:
            connection.settimeout(0.3)
            try:  # whose body counts as the newest of five that come at once is up to the engine
                answers.append(connection.recv(65536)[:12])
            except TimeoutError:
                connection.settimeout(20)
                answers.append(exchange(connection, b"y")[1])
        assert sorted(answers) == [b"2 of 2"] * 5 + [b"HTTP/1.1 503"]
        assert answers[5] == b"2 of 2"
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "Refused 1 unfinished body with 503"
    ]


def test_a_reader_that_takes_too_little_is_given_up(serve: Serve, lane1: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than the least rate, after the time in which any rate will do, ends the response."""
    monkeypatch.setattr("plughost._servers.base._RATE_GRACE_SECONDS", 0.5)
    monkeypatch.setattr("plughost._servers.base._MIN_RATE", 1 << 30)
    closed = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            yield from itertools.repeat(b"x" * 1_000_000)
        finally:
            closed.set()

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return endless()

    with serve(application, lane1).connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert closed.wait(20)


def test_connections_over_the_limit_wait_their_turn(serve: Serve, lane: Lane, gate: Gate) -> None:
    """With the limit reached, the next client is served once another leaves."""
    served = serve(gate, lane, connection_limit=10)
    opened = connect(served, 30)
    for connection in opened:
        connection.close()
    assert_served(served)


def test_a_crowd_that_says_nothing_gives_way(serve: Serve, lane: Lane, gate: Gate) -> None:
    """With the limit reached by idle connections, they make room for all that wait, many times as many."""
    served = serve(gate, lane, connection_limit=10)
    opened = connect(served, 200)
    assert_served(served)
    for connection in opened:
        connection.close()


def test_a_crowd_of_one_address_costs_nobody_else_a_connection(
    serve: Serve, lane1: Lane, gate: Gate, exchange: Exchange
) -> None:
    """At the limit idle connections of whoever holds most are closed, even where another's were idle for longer."""
    served = serve(gate, lane1, connection_limit=16)
    with served.connect("127.0.0.2") as other:
        assert exchange(other, b"GET /first HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/first"
        opened = connect(served, 40)
        assert_served(served)
        assert exchange(other, b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/second"
        for connection in opened:
            connection.close()


def test_waiting_requests_are_not_worth_a_line_in_the_log(
    serve: Serve, lane1: Lane, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that wait for the only thread are answered, and nothing is logged about them."""
    served = serve(gate, lane1, threads=1)
    opened = [served.connect() for _ in range(10)]
    for connection in opened:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
    gate.wait_until_entered()
    gate.opened.set()
    for connection in opened:
        with connection:
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert caplog.records == []
