"""For how long an engine waits for whom when it stops, and that nothing ends it before."""

from __future__ import annotations

import logging
import resource
import select
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest
from tests.engines.conftest import LANES
from tests.engines.test_crowds import connect
from tests.engines.test_drain import Draining

from plughost._servers import connections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from wsgiref.types import WSGIApplication

    from tests.engines.conftest import Exchange, Gate, Lane, Serve, Until

    from plughost._servers.granian import GranianEngine


def test_a_request_that_has_begun_is_waited_for_where_an_idle_connection_is_closed(
    serve: Serve, counting_app: WSGIApplication, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waitress knows the two apart: the rest of the one is on its way."""
    monkeypatch.setattr("plughost._servers.waitress._QUIET_SECONDS", 0.0)
    monkeypatch.setattr("plughost._servers.waitress._STALLED_SECONDS", 1000.0)
    served = serve(counting_app, LANES[0])
    with served.connect() as begun, served.connect() as idle:
        begun.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab")
        exchange(idle, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")  # the beginning was read before that was answered
        draining = Draining(served, grace=300)
        assert idle.recv(1) == b""
        assert exchange(begun, b"cd")[1] == b"4 of 4"
    draining.join(20)
    assert draining.answered is True


def test_a_drain_waits_for_the_thread_of_a_request_whose_client_has_gone(
    serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does is not cut off in the middle where the process ends next; then no thread is left."""
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
    """A log that can't be written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Fail where a crowd is told."""
        if "accepts little" in record.getMessage():
            raise OSError("No space left on device")


@pytest.fixture
def full_disk() -> Iterator[None]:
    """The host's log can't tell of a crowd."""
    logger, handler = logging.getLogger("plughost._servers"), FullDisk()
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.mark.usefixtures("full_disk")
def test_what_fails_in_between_ends_no_engine(
    serve: Serve, lane1: Lane, gate: Gate, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, and requests are answered on."""
    served = serve(gate, lane1, connection_limit=10)
    opened = connect(served, 30)
    until(lambda: "failed" in caplog.text)
    assert served.client().get("/on").text == "/on"
    for each in opened:
        each.close()


def test_clients_of_an_engine_that_was_replaced_have_more_time(
    serve: Serve, gate: Gate, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, as for a host that stops: an idle connection of that one is closed first."""
    monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 0.3)
    replaced, stopping = serve(gate, LANES[1]), serve(gate, LANES[1])
    with replaced.connect() as kept, stopping.connect() as closed, ThreadPoolExecutor(2) as threads:
        for each in (kept, closed):
            exchange(each, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        engine = cast("GranianEngine", replaced.engine)
        drains = [threads.submit(engine.drain, 300, only=connections.clients(engine.port))]
        drains.append(threads.submit(stopping.engine.drain, 300))
        assert select.select([kept, closed], [], [], 20)[0] == [closed]
        assert [each.result(20) for each in drains] == [True, True]


def test_an_engine_that_has_paused_before_makes_room_after_a_crowd(
    serve: Serve, https_lane: Lane, gate: Gate, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it was resumed, whoever comes later finds it as if it never had paused."""
    served = serve(gate, https_lane, connection_limit=10)
    engine = cast("GranianEngine", served.engine)
    engine.pause()
    engine.resume()
    opened = connect(served, 30)
    until(lambda: "accepts little" in caplog.text)
    assert served.client().get("/later").text == "/later"
    for each in opened:
        each.close()


def test_connections_are_not_told_where_no_file_can_be_opened() -> None:
    """Who looks after them goes on without."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        found = connections.clients(80)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == frozenset()
