"""The watcher that notices slow requests."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from tests.engines.dispatching import hold, submit

from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from tests.engines.conftest import Gate, Serve, WaitUntil
    from tests.lanes import Lane

    from plughost._servers.dispatcher import Dispatcher


def test_a_slow_job_loses_the_turn_after_the_watcher_has_failed(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception from `on_slow` is logged, and the watcher goes on."""

    def fail() -> None:
        raise SystemExit

    task = submit(dispatcher, lambda: release.wait(20), "failing")
    task.on_slow = fail  # type: ignore[method-assign] # no task of ours fails there
    with caplog.at_level(logging.ERROR):
        wait_until(lambda: "a look at the requests failed" in caplog.text)
    hold(dispatcher, release, wait_until, "slow", 1)


def test_a_request_may_end_before_the_watcher_learns_that_it_is_slow(
    serve: Serve, lane: Lane, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a request announced that it takes long; nothing fails, and the next slow one still loses the turn."""

    def announce(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        about_to_wait(long=environ["PATH_INFO"] == "/announced")
        return gate(environ, start_response)

    served = serve(announce, lane)
    client, held = served.client(), served.client()
    with caplog.at_level(logging.ERROR):
        assert client.get("/announced").text == "/announced"
        thread = threading.Thread(target=held.get, args=("/held",))
        thread.start()
        gate.wait_until_entered()
        assert client.get("/free").text == "/free"
        gate.opened.set()
        thread.join(20)
    assert caplog.text == ""
