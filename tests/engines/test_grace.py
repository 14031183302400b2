"""What a drain of granian waits for, and for how long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from tests.engines.test_drain import Draining
from tests.lanes import LANES, Lane

if TYPE_CHECKING:
    import pytest
    from tests.engines.conftest import Exchange, Gate, Serve, WaitUntil

    from plughost._servers.granian import GranianEngine


def test_a_recently_active_client_may_send_another_request(
    serve: Serve, gate: Gate, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays open for a while without a request in flight, and closes after `Connection: close`."""
    monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 1000.0)
    monkeypatch.setattr("plughost._servers.granian._BUSY_SECONDS", 1000.0)
    served = serve(gate, LANES[1])
    with served.connect() as connection:
        assert exchange(connection, b"GET /first HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/first"
        draining = Draining(served, grace=300)
        draining.join(0.5)
        response, body = exchange(connection, b"GET /second HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (response.getheader("Connection"), body) == ("close", b"/second")
        draining.join(20)
        assert draining.answered is True


def test_a_recently_active_client_is_waited_for_until_half_of_the_grace(
    serve: Serve, gate: Gate, exchange: Exchange, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its connection is closed, and the rest of the time is for requests in flight."""
    monkeypatch.setattr("plughost._servers.granian._QUIET_SECONDS", 1000.0)
    served = serve(gate, LANES[1])
    engine = cast("GranianEngine", served.engine)
    with served.connect() as idle, served.connect() as busy:
        assert exchange(idle, b"GET /once HTTP/1.1\r\nHost: h\r\n\r\n")[1] == b"/once"
        busy.sendall(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        gate.wait_until_entered()
        draining, clock = Draining(served, grace=400), time.monotonic
        wait_until(lambda: engine._requests.is_draining)
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 370)
        assert idle.recv(1) == b""
        draining.join(0.5)
        gate.opened.set()
        assert exchange(busy, b"")[1] == b"/held"
        draining.join(20)
        assert draining.answered is True


def test_an_ended_engine_has_nothing_to_drain(serve: Serve, lane: Lane, gate: Gate) -> None:
    """It reports at once that nothing was cut off."""
    served = serve(gate, lane)
    assert served.engine.drain(2) is True
    assert served.engine.drain(2) is True
