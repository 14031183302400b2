"""For how long a stopping engine waits for each kind of client; nothing else ends it earlier."""

from __future__ import annotations

import logging
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest
from tests.engines.dispatching import PlainApplication
from tests.engines.test_crowds import connect
from tests.engines.test_drain import Draining
from tests.lanes import LANES, Lane

from plughost._servers import connections
from plughost._servers.granian import _QUIET_SECONDS as QUIET_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from wsgiref.types import WSGIApplication

    from tests.engines.conftest import Exchange, Gate, Serve, WaitUntil

    from plughost._servers.granian import GranianEngine


def test_a_started_request_is_waited_for_and_an_idle_connection_is_closed(
    serve: Serve, counting_app: WSGIApplication, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waitress distinguishes them: the rest of a started request is on its way."""
    monkeypatch.setattr("plughost._servers.waitress._QUIET_SECONDS", 0.0)
    monkeypatch.setattr("plughost._servers.waitress._STALLED_SECONDS", 1000.0)
    served = serve(counting_app, LANES[0])
    with served.connect() as begun, served.connect() as idle:
        begun.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
        exchange(idle, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")  # the first half of the body was read before this answer
        draining = Draining(served, grace=300)
        assert idle.recv(1) == b""
        assert exchange(begun, b"cd")[1] == b"4 of 4"
    draining.join(20)
    assert draining.answered is True


def test_a_request_that_arrives_while_the_process_is_suspended_is_answered(
    serve: Serve, counting_app: WSGIApplication, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On waitress, its connection doesn't count as idle, even if the suspension began as another one was read."""
    served, request, clock = serve(counting_app, LANES[0]), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", time.monotonic
    with served.connect() as waiting, served.connect() as other:
        exchange(waiting, request)

        def suspend(*_: object) -> str:
            monkeypatch.setattr(PlainApplication, "plugin_of", lambda *_: "")
            waiting.sendall(request)
            monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600)
            return ""

        monkeypatch.setattr(PlainApplication, "plugin_of", suspend)
        assert exchange(other, request)[0].status == 200
        assert exchange(waiting, b"")[0].status == 200


def test_a_drain_waits_for_the_thread_of_a_disconnected_client(
    serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the process must not interrupt its work; afterwards no thread is left."""
    monkeypatch.setattr("plughost._servers.waitress._STOP_SECONDS", 60.0)
    served = serve(gate, LANES[0])
    with served.connect() as connection:
        connection.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
    draining = Draining(served)
    draining.join(0.5)
    assert draining.is_alive()
    gate.opened.set()
    draining.join(20)
    assert draining.answered is True
    assert f"waitress-{served.engine.port}" not in {thread.name for thread in threading.enumerate()}


class FullDisk(logging.Handler):
    """A log on a full disk."""

    def emit(self, record: logging.LogRecord) -> None:
        """Fail on the warning about a crowd."""
        if "accepts little" in record.getMessage():
            raise OSError("No space left on device")


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Make the host's log fail on the warning about a crowd."""
    logger, handler = logging.getLogger("plughost._servers"), FullDisk()
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.mark.usefixtures("full_disk")
def test_an_error_in_between_stops_no_engine(
    serve: Serve, http1_lane: Lane, gate: Gate, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and requests are still answered."""
    served = serve(gate, http1_lane, connection_limit=10)
    opened = connect(served, 30)
    wait_until(lambda: "failed" in caplog.text)
    assert served.client().get("/on").text == "/on"
    for each in opened:
        each.close()


def test_clients_of_a_replaced_engine_have_more_time(
    serve: Serve, gate: Gate, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a replaced engine, so a stopping host closes idle connections first."""
    monkeypatch.setattr("plughost._servers.granian._BUSY_SECONDS", 1000.0)
    monkeypatch.setattr(connections, "idle_seconds", lambda _: 2 * QUIET_SECONDS)
    replaced, stopping = serve(gate, LANES[1]), serve(gate, LANES[1])
    request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    with replaced.connect() as kept, stopping.connect() as closed, ThreadPoolExecutor(2) as threads:
        for each in (kept, closed):
            exchange(each, request)
        cast("GranianEngine", replaced.engine).pause()
        drains = [threads.submit(each.engine.drain, 300) for each in (replaced, stopping)]
        assert closed.recv(1) == b""
        assert drains[1].result(20) is True
        assert exchange(kept, request)[0].status == 200
        assert drains[0].result(20) is True


def test_an_engine_that_was_paused_makes_room_after_a_crowd(
    serve: Serve, https_lane: Lane, gate: Gate, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """After `resume`, it behaves as if it had never paused."""
    served = serve(gate, https_lane, connection_limit=10)
    engine = cast("GranianEngine", served.engine)
    engine.pause()
    engine.resume()
    opened = connect(served, 30)
    wait_until(lambda: "accepts little" in caplog.text)
    assert served.client().get("/later").text == "/later"
    for each in opened:
        each.close()


def test_connections_are_unknown_without_free_descriptors() -> None:
    """The caller continues without them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        found = connections.clients(80)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == frozenset()
