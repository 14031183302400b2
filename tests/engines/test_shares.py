"""When a slow request releases a thread, the next waiting plugin with a free share gets it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.engines.dispatching import SHARE, hold, submit

from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    import pytest
    from tests.engines.conftest import WaitUntil

    from plughost._servers.dispatcher import Dispatcher


def test_a_released_thread_goes_to_plugins_below_their_share(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """They alternate, as quick requests do, even if requests of plugins without a free share wait longer."""
    ends = threading.Event()
    hold(dispatcher, ends, wait_until, "ends", SHARE)
    for plugin in ("full", "full, too"):
        hold(dispatcher, release, wait_until, plugin, SHARE)
    for plugin in ("one", "another"):
        hold(dispatcher, release, wait_until, plugin, 1)
    done = {plugin: threading.Semaphore(0) for plugin in ("full", "one", "another")}
    for plugin in ("full", "one", "another", "one", "another"):
        submit(dispatcher, done[plugin].release, plugin)
    wait_until(lambda: sum(load.queued for load in dispatcher.loads().values()) == 5)
    ends.set()
    for plugin in ("one", "another") * 2:
        assert done[plugin].acquire(timeout=20)
    assert dispatcher.loads()["full"] == (SHARE, 1, 0)


def test_a_thread_beyond_the_share_goes_to_another_plugin(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """Two threads released at once admit two requests of one plugin, and the first turns out to be slow."""
    ends, done = threading.Event(), threading.Event()
    hold(dispatcher, ends, wait_until, "ends", SHARE)
    for plugin in ("full", "full, too"):
        hold(dispatcher, release, wait_until, plugin, SHARE)
    for plugin in ("slow", "quick"):
        hold(dispatcher, release, wait_until, plugin, 1)
    for _ in range(2):
        submit(dispatcher, lambda: release.wait(20), "slow")
    submit(dispatcher, done.set, "quick")
    wait_until(lambda: sum(load.queued for load in dispatcher.loads().values()) == 3)
    ends.set()
    assert done.wait(10)  # before the requests that it waits for end by themselves


def test_a_request_that_yields_keeps_no_other_waiting(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """The next request gets the thread for which it was admitted."""

    def rest() -> None:
        about_to_wait(long=True)
        release.wait(20)

    ends, done = threading.Event(), threading.Event()
    hold(dispatcher, ends, wait_until, "slow", SHARE)
    for run in (rest, rest, done.set):
        submit(dispatcher, run, "slow")
    wait_until(lambda: dispatcher.loads()["slow"].queued == 3)
    ends.set()
    assert done.wait(10)  # before the requests that it waits for end by themselves


def test_a_slow_request_that_yields_keeps_no_other_waiting(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """The next request, which came while its plugin had no free thread, gets the one that it leaves."""
    computed, done = threading.Event(), threading.Event()

    def compute_and_rest() -> None:
        computed.wait(20)
        about_to_wait(long=True)
        release.wait(20)

    for _ in range(SHARE):
        submit(dispatcher, compute_and_rest, "slow")
    wait_until(lambda: dispatcher.loads()["slow"].held == SHARE)
    submit(dispatcher, done.set, "slow")
    wait_until(lambda: dispatcher.loads()["slow"].queued == 1)
    computed.set()
    assert done.wait(10)  # before the requests that it waits for end by themselves


def test_a_request_that_becomes_slow_as_it_yields_leaves_its_share(
    dispatcher: Dispatcher, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher may take the lock first, and make it a slow one."""
    lock, waits = dispatcher._lock, threading.Event()

    class AfterTheWatcher:
        def __enter__(self) -> None:
            with lock:
                dispatcher._demote(dispatcher._run_count)
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def wait() -> None:
        with monkeypatch.context() as late:
            late.setattr(dispatcher, "_lock", AfterTheWatcher())
            about_to_wait(long=True)
        waits.set()
        release.wait(20)

    submit(dispatcher, wait, "waits")
    assert waits.wait(20)
    assert dispatcher.loads()["waits"].held == 0
