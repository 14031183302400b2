"""An engine that stops answers all requests that it has received."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from typing import TYPE_CHECKING, cast

import h2.connection
import h2.events
import h2.exceptions
import httpx
import pytest
from tests.lanes import LANES, Lane
from tests.limits import no_descriptors

from plughost._servers import connections
from plughost._servers.granian import GranianEngine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Environ, Exchange, Gate, Serve, Served, WaitUntil


TRIES = [0, 1, *(pytest.param(number, marks=pytest.mark.thorough) for number in range(2, 10))]


class Draining(threading.Thread):
    """Drains an engine in the background."""

    def __init__(self, served: Served, grace: float = 20.0) -> None:
        """Start at once."""
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
    except ConnectionError:  # refused, or reset while the port closes
        return True
    return False


@pytest.mark.parametrize("attempt", TRIES)
def test_requests_in_flight_are_answered(
    serve: Serve, lane: Lane, gate: Gate, wait_until: WaitUntil, attempt: int
) -> None:
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
    wait_until(lambda: refuses(served))
    gate.opened.set()
    for thread in asking:
        thread.join(20)
    draining.join(20)
    assert draining.answered is True
    assert sorted(responses) == [f"/held{n}" for n in range(10)]


@pytest.mark.usefixtures("patient_drains")
@pytest.mark.parametrize("attempt", TRIES)
def test_sent_requests_are_answered(serve: Serve, http1_lane: Lane, gate: Gate, attempt: int) -> None:
    """This includes requests that wait for a thread, and requests that nobody has read yet."""
    served = serve(gate, http1_lane, threads=2)
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


def test_requests_of_a_shared_connection_are_answered(
    serve: Serve, lane: Lane, gate: Gate, wait_until: WaitUntil
) -> None:
    """Requests that share a client's connections are answered; HTTP/2 shares one."""
    served = serve(gate, lane, threads=6)

    async def ask() -> list[str]:
        async with served.sharing_client() as client:
            assert (await client.get("/warm")).text == "/warm"
            asked = asyncio.gather(*(client.get(f"/held{number}") for number in range(6)))
            await asyncio.to_thread(gate.wait_until_entered, 6)
            draining = Draining(served)
            await asyncio.to_thread(wait_until, lambda: refuses(served))
            gate.opened.set()
            responses = await asked
            await asyncio.to_thread(draining.join, 20)
            assert draining.answered is True
            return [answer.text for answer in responses]

    assert asyncio.run(ask()) == [f"/held{number}" for number in range(6)]


@pytest.mark.usefixtures("patient_drains")
def test_an_active_client_is_told_to_close(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """A connection with further requests is answered during the drain until it receives `Connection: close`."""
    served = serve(gate, http1_lane)
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
    """Idle keep-alive and silent connections are closed without waiting for the grace time."""
    served = serve(gate, lane)
    assert served.client().get("/once").text == "/once"
    with served.connect() as silent:
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True
        assert silent.recv(1) == b""


def test_unaccepted_connections_do_not_hold_the_drain(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """At the limit of connections, the drain does not spend its grace on clients that nobody accepts."""
    served = serve(gate, http1_lane, connection_limit=10)
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.engine.port), timeout=20))
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_connections_without_a_descriptor_do_not_hold_the_drain(serve: Serve, lane: Lane, gate: Gate) -> None:
    """While the process can open no file, nobody can accept what is in the backlog."""
    served = serve(gate, lane)
    with socket.socket() as waiting, no_descriptors():
        waiting.settimeout(20)
        waiting.connect(("127.0.0.1", served.engine.port))
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_a_paused_engine_does_not_wait_for_new_connections(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """While it accepts nothing, a connection in the backlog does not hold the drain."""
    served = serve(gate, https_lane)
    engine = cast("GranianEngine", served.engine)
    engine.pause()
    with socket.create_connection(("127.0.0.1", engine.port), timeout=20):
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_a_connection_is_not_idle_before_its_answer_is_written(
    serve: Serve,
    https_lane: Lane,
    gate: Gate,
    wait_until: WaitUntil,
    exchange: Exchange,
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Granian writes the answer later: for a moment, neither a request nor bytes are visible."""
    monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 1000.0)  # however long this moment is here
    served = serve(gate, https_lane)
    engine = served.engine
    assert isinstance(engine, GranianEngine)
    requests = engine._requests
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
        engine._disconnect_idle(-1.0)
        gate.opened.set()
        wait_until(lambda: not requests.in_flight)
        engine._disconnect_idle(-1.0)
        assert exchange(connection, b"")[1] == b"/held"
        assert exchange(connection, b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/next"
        monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 0.0)

        def cut() -> bool:
            engine._disconnect_idle(-1.0)
            return not connections.clients(engine.port)

        wait_until(cut)


@pytest.mark.parametrize("taken", [True, False])
def test_a_drain_waits_for_a_client_that_reads_late(serve: Serve, http1_lane: Lane, taken: bool) -> None:
    """The client pauses for longer than the idle time-out; an answer that is never read does not count as delivered."""
    size = 30_000_000

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
        return [bytes(size)]

    served = serve(application, http1_lane)
    with served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        draining = Draining(served, grace=300.0 if taken else 3.0)
        draining.join(2.5 if taken else 20.0)
        if taken:
            assert len(answer.read()) == size
    draining.join(20)
    assert draining.answered is taken


@pytest.mark.usefixtures("patient_drains")
def test_a_drain_waits_for_a_body(
    serve: Serve, http1_lane: Lane, gate: Gate, counting_app: WSGIApplication, exchange: Exchange
) -> None:
    """A request is answered if the second half of its body arrives during the drain."""
    served = serve(counting_app, http1_lane)
    with served.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
        draining = Draining(served)
        response, body = exchange(connection, b"cd")
        assert (response.status, body) == (200, b"4 of 4")
    draining.join(20)
    assert draining.answered is True


def test_requests_beyond_the_grace_are_cut_off_and_reported(serve: Serve, lane: Lane, gate: Gate) -> None:
    """The drain ends in time, and reports that a request was not answered."""
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


def test_idle_clients_hold_no_drain(serve: Serve, lane: Lane, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain waits for clients with further requests, not for connections without traffic."""
    monkeypatch.setattr("plughost._servers.granian._BUSY_SECONDS", 1000.0)
    served = serve(gate, lane)
    with served.connect():
        draining = Draining(served, grace=300)
        draining.join(20)
        assert draining.answered is True


def test_active_http2_clients_are_sent_away(serve: Serve, gate: Gate) -> None:
    """They can't receive `Connection: close`: their requests in flight are answered, then all get GOAWAY."""
    served = serve(gate, LANES[3])
    answered = threading.Event()
    errors: list[Exception] = []

    def ask() -> None:
        client = served.client()
        while True:
            try:
                assert client.get("/more").status_code == 200
                answered.set()
            except (httpx.TransportError, h2.exceptions.ProtocolError) as error:
                errors.append(error)
                return

    asking = threading.Thread(target=ask)
    asking.start()
    assert answered.wait(20)
    draining = Draining(served, grace=300)
    draining.join(20)
    asking.join(20)
    assert draining.answered is True
    assert len(errors) == 1


def test_a_disconnected_client_is_not_cut_off(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """A drain does not count a request whose client left before the answer, although the application continues."""
    served = serve(gate, http1_lane)
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
    assert served.engine.drain(2) is True


def test_a_long_download_is_completed(serve: Serve, lane: Lane, wait_until: WaitUntil) -> None:
    """The drain waits for the end of a streamed response."""
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
    wait_until(lambda: refuses(served))
    go_on.set()
    downloading.join(20)
    draining.join(20)
    assert draining.answered is True
    assert sizes == [5_100_000]


def test_a_drain_waits_for_the_native_thread_of_a_request(
    serve: Serve, gate: Gate, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the grace, the request is cut off, but the drain waits for its thread: the interpreter may end next."""
    monkeypatch.setattr("plughost._servers.granian._STOP_SECONDS", 60.0)
    served = serve(gate, LANES[1])
    engine = cast("GranianEngine", served.engine)
    worker = engine._worker
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
        draining = Draining(served, grace=0.1)
        wait_until(worker.ended.is_set)
        draining.join(0.5)
        assert draining.is_alive()
        gate.opened.set()
        draining.join(20)
        assert draining.answered is False


def test_http2_clients_are_not_sent_away_before_their_answer(
    serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection may look idle, but not every client survives a GOAWAY with a request in flight."""
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
        draining.join(0.5)  # after which a drain that trusts an idle connection has sent GOAWAY
        monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 10.0)  # so that granian can send the response
        gate.opened.set()
        received: list[type] = []
        for data in iter(lambda: connection.recv(65536), b""):
            received += map(type, http2.receive_data(data))
            if h2.events.StreamEnded in received:
                break
        assert h2.events.ConnectionTerminated not in received[: received.index(h2.events.StreamEnded)]
    draining.join(20)
    assert draining.answered is True
