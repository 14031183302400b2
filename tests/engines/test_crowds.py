"""Idle, slow and stalled clients don't keep others from being served."""

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
from tests.lanes import Lane

from plughost._servers.waitress import Server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Environ, Exchange, Gate, Serve, Served, WaitUntil

IDLE, HALF_SENT, SLOW_BODIES = 1100, 500, 20


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Raise the limit of descriptors to fit the connections of both sides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 3 * IDLE
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            pytest.skip(f"this process may open {hard} files only, {needed} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(served: Served, connections: int) -> list[socket.socket]:
    """Open this many connections, without a TLS handshake."""
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.engine.port), timeout=20))
            for _ in range(connections)
        ]
        stack.pop_all()
        return opened


def is_closed(connection: socket.socket) -> bool:
    """Read until the server closes the connection; return False if it is silent for 20 s instead."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def is_refused(connection: socket.socket) -> bool:
    """Return whether a connection has received the beginning of a 503 by now; fail if it is another answer's."""
    connection.setblocking(False)
    try:
        assert connection.recv(12) == b"HTTP/1.1 503"
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    finally:
        connection.settimeout(20)
    return True


def assert_served(served: Served) -> None:
    """Check that new clients are answered, more of them than there are threads."""
    for number in range(8):
        assert served.client().get(f"/other{number}").text == f"/other{number}"


def test_idle_connections_do_not_block_others(serve: Serve, lane: Lane, gate: Gate, descriptors: None) -> None:
    """1100 connections send nothing, not even a TLS handshake."""
    served = serve(gate, lane)
    opened = connect(served, IDLE)
    assert_served(served)
    for connection in opened:
        connection.close()


def test_incomplete_headers_do_not_block_others(serve: Serve, lane: Lane, gate: Gate, descriptors: None) -> None:
    """500 requests never complete their header, after a handshake in the case of TLS."""
    served = serve(gate, lane)
    opened = [served.connect() for _ in range(HALF_SENT)]
    for connection in opened:
        connection.sendall(b"GET /never HTTP/1.1\r\nHost: h\r\nX-Half")
    assert_served(served)
    for connection in opened:
        connection.close()


def test_slow_bodies_hold_no_thread(serve: Serve, lane: Lane, gate: Gate) -> None:
    """20 bodies never end, and there are only four threads."""
    served = serve(gate, lane)
    opened = [served.connect() for _ in range(SLOW_BODIES)]
    for connection in opened:
        connection.sendall(b"POST /never HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nx")
    assert_served(served)
    for connection in opened:
        connection.close()


def test_clients_that_read_nothing_hold_no_thread(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """Forty clients of HTTP/1.1, or a hundred streams of HTTP/2 without a window, face four threads."""

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
def test_a_silent_connection_is_closed(serve: Serve, http1_lane: Lane, gate: Gate, said: bytes) -> None:
    """The server closes it after the idle time-out, whether or not it was used before."""
    with serve(gate, http1_lane, idle_timeout=1).connect() as connection:
        connection.sendall(said)
        assert is_closed(connection)


def test_a_body_that_stops_is_answered(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """A body that brings nothing for the idle time-out is 408, as one that takes too long in all."""
    with serve(gate, http1_lane, idle_timeout=1).connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc")
        assert connection.recv(12) == b"HTTP/1.1 408"


def test_a_slow_body_is_aborted(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """The time limit applies even if its bytes arrive regularly."""
    with serve(gate, http1_lane, idle_timeout=10, body_timeout=1).connect() as connection:
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
    """A TLS client that never starts the handshake is disconnected."""
    (connection,) = connect(serve(gate, https_lane, idle_timeout=1), 1)
    with connection, contextlib.suppress(ConnectionError):
        assert connection.recv(1) == b""


def test_a_long_request_survives_the_idle_time_out(serve: Serve, lane: Lane, gate: Gate, wait_until: WaitUntil) -> None:
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
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Idle times don't depend on the time of day: a client that has just been served may send another request."""
    served = serve(environ_app, http1_lane, idle_timeout=40)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", 0)) as client:
        client.sock = served.connect()
        for clock in (time.time, lambda: time.time_ns() / 1e9 + days * 86400):
            monkeypatch.setattr(time, "time", clock)
            assert served.client().get("/other").status_code == 200
            client.request("GET", "/asked")
            assert client.getresponse().read()


def test_setting_the_clock_back_keeps_no_connection_open(
    serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle connection is closed on time, whatever happens to the time of day."""
    with serve(gate, http1_lane, idle_timeout=1).connect() as connection:
        assert exchange(connection, b"GET /asked HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/asked"
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 - 86400)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""


def test_the_newest_bodies_of_the_largest_sender_are_refused(
    serve: Serve,
    http1_lane: Lane,
    counting_app: WSGIApplication,
    exchange: Exchange,
    wait_until: WaitUntil,
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When unfinished bodies use too much memory, these get 503, the log one line, and all others succeed."""
    served = serve(counting_app, http1_lane, body_memory=5 * 16 * 1024)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx"
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(served.connect(source)) for source in ("127.0.0.1",) * 5 + ("127.0.0.2",)]
        for connection in opened:
            connection.sendall(head)
        wait_until(lambda: caplog.records)
        refused: list[socket.socket] = []  # the engine decides which of five simultaneous bodies counts as the newest

        def is_any_refused() -> bool:
            refused.extend(filter(is_refused, opened))
            return bool(refused)

        wait_until(is_any_refused)
        assert [exchange(each, b"y")[1] for each in opened if each not in refused] == [b"2 of 2"] * 5
        assert opened[5] not in refused
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "Refused 1 unfinished body with 503"
    ]


def test_a_client_that_reads_too_slowly_is_disconnected(
    serve: Serve, http1_lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the initial grace, a rate below the minimum ends the response."""
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

    with serve(application, http1_lane).connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert closed.wait(20)


def test_connections_above_the_limit_wait_their_turn(serve: Serve, lane: Lane, gate: Gate) -> None:
    """At the limit, the next client is served once another leaves."""
    served = serve(gate, lane, connection_limit=10)
    opened = connect(served, 30)
    for connection in opened:
        connection.close()
    assert_served(served)


def test_idle_connections_make_room_for_a_crowd(serve: Serve, lane: Lane, gate: Gate) -> None:
    """When idle connections reach the limit, they are closed for waiting clients, many times as many."""
    served = serve(gate, lane, connection_limit=10)
    opened = connect(served, 100)
    assert_served(served)
    for connection in opened:
        connection.close()


def test_each_look_at_a_full_listener_makes_room(serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waitress closes idle connections each time that it finds all places taken, however quickly a crowd took them."""
    maintain, known = Server._maintain, list[bool]()

    def spy(server: Server, now: float) -> None:
        if len(server._map) >= server.adj.connection_limit:
            known.append(server.in_connection_overflow)
        maintain(server, now)

    monkeypatch.setattr(Server, "_maintain", spy)
    served = serve(gate, Lane("waitress", "http"), connection_limit=10)
    opened = connect(served, 100)
    assert_served(served)
    assert known
    assert all(known)
    for connection in opened:
        connection.close()


def test_a_crowd_from_one_address_costs_others_no_connection(
    serve: Serve, http1_lane: Lane, gate: Gate, exchange: Exchange
) -> None:
    """At the limit, idle connections of the address with most of them are closed, even if others are older."""
    served = serve(gate, http1_lane, connection_limit=16)
    with served.connect("127.0.0.2") as other:
        assert exchange(other, b"GET /first HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/first"
        opened = connect(served, 40)
        assert_served(served)
        assert exchange(other, b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/second"
        for connection in opened:
            connection.close()


def test_waiting_requests_are_not_logged(
    serve: Serve, http1_lane: Lane, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that wait for the only thread are answered, and the log says nothing about them."""
    served = serve(gate, http1_lane, threads=1)
    opened = [served.connect() for _ in range(10)]
    for connection in opened:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
    gate.wait_until_entered()
    gate.opened.set()
    for connection in opened:
        with connection:
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert caplog.records == []
