"""An engine that stops answers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import socket
import threading
from typing import TYPE_CHECKING, cast

import h2.connection
import h2.events
import h2.exceptions
import httpx
import pytest
from tests.engines.conftest import LANES

from plughost._servers import connections
from plughost._servers.granian import GranianEngine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Environ, Exchange, Gate, Lane, Serve, Served, Until


TRIES = [0, 1, *(pytest.param(number, marks=pytest.mark.thorough) for number in range(2, 10))]


class Draining(threading.Thread):
    """Drains an engine in the background."""

    def __init__(self, served: Served, grace: float = 20.0) -> None:
        """Begin at once."""
        super().__init__()
        self.served = served
        self.grace = grace
        self.answered: bool | None = None
        self.start()

    def run(self) -> None:
        """Drain."""
        self.answered = self.served.engine.drain(self.grace)


def refuses(served: Served) -> bool:
    """Return whether new connections are refused."""
    try:
        socket.create_connection(("127.0.0.1", served.engine.port), timeout=20).close()
    except ConnectionError:  # refused, or reset in the moment of closing
        return True
    return False


@pytest.mark.parametrize("attempt", TRIES)
def test_requests_in_flight_are_answered(serve: Serve, lane: Lane, gate: Gate, until: Until, attempt: int) -> None:
    """Ten slow requests are all answered after the port was closed."""
    served = serve(gate, lane, threads=10)
    responses: list[str] = []
    asking = [
        threading.Thread(target=lambda n=n: responses.append(served.client().get(f"/held{n}").text)) for n in range(10)
    ]
    for thread in asking:
        thread.start()
    gate.wait_until_entered(10)
    draining = Draining(served)
    until(lambda: refuses(served))
    gate.opened.set()
    for thread in asking:
        thread.join(20)
    draining.join(20)
    assert draining.answered is True
    assert sorted(responses) == [f"/held{n}" for n in range(10)]


@pytest.mark.parametrize("attempt", TRIES)
def test_requests_that_were_sent_are_answered(serve: Serve, lane1: Lane, gate: Gate, attempt: int) -> None:
    """Requests that wait for a thread, and requests that nobody has read yet, are answered."""
    served = serve(gate, lane1, threads=2)
    opened = [served.connect() for _ in range(20)]
    for number, connection in enumerate(opened):
        connection.sendall(b"GET /held%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
    draining = Draining(served)
    gate.opened.set()
    for number, connection in enumerate(opened):
        with connection:
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert (response.status, response.read()) == (200, b"/held%d" % number)
    draining.join(20)
    assert draining.answered is True


def test_streams_of_one_connection_are_answered(serve: Serve, lane: Lane, gate: Gate, until: Until) -> None:
    """Requests that share a client's connections are answered; HTTP/2 shares one."""
    served = serve(gate, lane, threads=6)

    async def ask() -> list[str]:
        async with served.sharing_client() as client:
            assert (await client.get("/warm")).text == "/warm"
            asked = asyncio.gather(*(client.get(f"/held{number}") for number in range(6)))
            await asyncio.to_thread(gate.wait_until_entered, 6)
            draining = Draining(served)
            await asyncio.to_thread(until, lambda: refuses(served))
            gate.opened.set()
            responses = await asked
            await asyncio.to_thread(draining.join, 20)
            assert draining.answered is True
            return [answer.text for answer in responses]

    assert asyncio.run(ask()) == [f"/held{number}" for number in range(6)]


def test_a_client_under_way_is_told_to_close(serve: Serve, lane1: Lane, gate: Gate) -> None:
    """A connection that asks on while draining is answered until it is told `Connection: close`."""
    served = serve(gate, lane1)
    with served.connect() as connection:
        draining: Draining | None = None
        for number in range(100_000):
            connection.sendall(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
            response = http.client.HTTPResponse(connection)
            response.begin()
            assert response.read() == b"/%d" % number
            if response.getheader("Connection") == "close":
                break
            draining = draining or Draining(served)
        assert response.getheader("Connection") == "close"
    assert draining is not None
    draining.join(20)
    assert draining.answered is True


def test_idle_connections_do_not_hold_the_drain(serve: Serve, lane: Lane, gate: Gate) -> None:
    """Kept-alive and silent connections are closed without waiting for the grace time."""
    served = serve(gate, lane)
    assert served.client().get("/once").text == "/once"
    with served.connect() as silent:
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True
        assert silent.recv(1) == b""


def test_who_finds_no_room_does_not_hold_the_drain(serve: Serve, lane1: Lane, gate: Gate) -> None:
    """At the limit of connections nobody accepts who waits: it is not waited for until the grace is over."""
    served = serve(gate, lane1, connection_limit=10)
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.engine.port), timeout=20))
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_an_engine_that_pauses_waits_for_nobody_who_comes(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """While it accepts nothing, a connection that waits for that does not hold its drain."""
    served = serve(gate, https_lane)
    engine = cast("GranianEngine", served.engine)
    engine.pause()
    with socket.create_connection(("127.0.0.1", engine.port), timeout=20):
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_a_connection_is_not_idle_before_its_answer_is_written(
    serve: Serve, https_lane: Lane, gate: Gate, until: Until, exchange: Exchange
) -> None:
    """Granian writes it after it was given: for a moment neither its request nor its bytes are to be seen."""
    served = serve(gate, https_lane)
    engine = served.engine
    assert isinstance(engine, GranianEngine)
    assert engine._serving is not None
    _, _, requests = engine._serving
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
        engine._disconnect_idle(requests, -1.0)
        gate.opened.set()
        until(lambda: not requests.in_flight)
        engine._disconnect_idle(requests, -1.0)
        assert exchange(connection, b"")[1] == b"/held"
        assert exchange(connection, b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/next"

        def cut() -> bool:
            engine._disconnect_idle(requests, -1.0)
            return not connections.clients(engine.port)

        until(cut)


@pytest.mark.parametrize("taken", [True, False])
def test_a_client_that_takes_its_answer_later_is_waited_for(serve: Serve, lane1: Lane, taken: bool) -> None:
    """It takes nothing for longer than an idle connection is kept; what it never takes does not count as answered."""
    size = 30_000_000

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
        return [bytes(size)]

    served = serve(application, lane1)
    with served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        draining = Draining(served, grace=20.0 if taken else 3.0)
        draining.join(2.5 if taken else 20.0)
        if taken:
            assert len(answer.read()) == size
    draining.join(20)
    assert draining.answered is taken


def test_a_body_on_its_way_is_waited_for(
    serve: Serve, lane1: Lane, gate: Gate, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """A request whose second half comes while draining is answered."""
    served = serve(counting_app, lane1)
    with served.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
        draining = Draining(served)
        response, body = exchange(connection, b"cd")
        assert (response.status, body) == (200, b"4 of 4")
    draining.join(20)
    assert draining.answered is True


def test_what_outlasts_the_grace_is_cut_off_and_told(serve: Serve, lane: Lane, gate: Gate) -> None:
    """The drain ends in time and says that a request was not answered."""
    served = serve(gate, lane)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            served.client().get("/held")
        except Exception as error:  # noqa: BLE001 - which one depends on the protocol
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    gate.wait_until_entered()
    assert served.engine.drain(0.2) is False
    asking.join(20)
    assert len(failures) == 1


def test_clients_that_were_idle_hold_no_drain(
    serve: Serve, lane: Lane, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ask on are waited for, and not those on whose connections nothing happens."""
    monkeypatch.setattr("plughost._servers.granian._BUSY_SECONDS", 1000.0)
    served = serve(gate, lane)
    with served.connect():
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_http2_clients_that_ask_on_are_sent_away(serve: Serve, gate: Gate) -> None:
    """They can't be told `Connection: close`: those that were in flight are answered, then all are told to go."""
    served = serve(gate, LANES[3])
    answered = threading.Event()
    told: list[Exception] = []

    def ask() -> None:
        client = served.client()
        while True:
            try:
                assert client.get("/more").status_code == 200
                answered.set()
            except (httpx.TransportError, h2.exceptions.ProtocolError) as error:
                told.append(error)
                return

    asking = threading.Thread(target=ask)
    asking.start()
    assert answered.wait(20)
    draining = Draining(served, grace=300)
    draining.join(20)
    asking.join(20)
    assert draining.answered is True
    assert len(told) == 1


def test_who_has_gone_is_not_cut_off(serve: Serve, lane1: Lane, gate: Gate) -> None:
    """A drain does not count a request whose client left before it was answered, though the application goes on."""
    served = serve(gate, lane1)
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
    assert served.engine.drain(2) is True


def test_a_long_download_is_finished(serve: Serve, lane: Lane, until: Until) -> None:
    """A response that is being streamed ends where it should."""
    entered, go_on = threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"x" * 100_000
        entered.set()
        assert go_on.wait(20)
        for _ in range(50):
            yield b"y" * 100_000

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return parts()

    served = serve(application, lane)
    sizes: list[int] = []
    downloading = threading.Thread(target=lambda: sizes.append(len(served.client().get("/").content)))
    downloading.start()
    assert entered.wait(20)
    draining = Draining(served)
    until(lambda: refuses(served))
    go_on.set()
    downloading.join(20)
    draining.join(20)
    assert draining.answered is True
    assert sizes == [5_100_000]


def test_a_drain_waits_for_the_native_thread_of_a_request(
    serve: Serve, gate: Gate, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that goes on when its grace is over is cut off, and its thread is awaited: the interpreter may end next."""
    monkeypatch.setattr("plughost._servers.granian._STOP_SECONDS", 60.0)
    served = serve(gate, LANES[1])
    engine = cast("GranianEngine", served.engine)
    assert engine._serving is not None
    _, worker, _ = engine._serving
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
        draining = Draining(served, grace=0.1)
        until(worker.ended.is_set)
        draining.join(0.5)
        assert draining.is_alive()
        gate.opened.set()
        draining.join(20)
        assert draining.answered is False


def test_http2_clients_are_not_sent_away_before_they_are_answered(
    serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However idle its connection looks: not all of them get over that with a request in flight."""
    monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 0.0)
    monkeypatch.setattr("plughost._servers.granian._POLL_SECONDS", 0.001)
    served = serve(gate, LANES[3])
    with served.connect(protocol="h2") as connection:
        http2 = h2.connection.H2Connection()
        http2.initiate_connection()
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/held")]
        http2.send_headers(http2.get_next_available_stream_id(), fields, end_stream=True)
        connection.sendall(http2.data_to_send())
        gate.wait_until_entered()
        draining = Draining(served)
        told: list[type] = []
        for number in itertools.count():
            if number == 150:
                gate.opened.set()
            http2.ping(number.to_bytes(8, "big"))
            connection.sendall(http2.data_to_send())
            told += map(type, http2.receive_data(connection.recv(65536)))
            if h2.events.StreamEnded in told or h2.events.ConnectionTerminated in told:
                break
        assert h2.events.ConnectionTerminated not in told[: told.index(h2.events.StreamEnded)]
    draining.join(20)
    assert draining.answered is True
