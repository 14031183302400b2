"""A thread that a slow request gives back goes to whoever waits for one and may have it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.engines.dispatching import SHARE, hold, submit

from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    from tests.engines.conftest import Until

    from plughost._servers.dispatcher import Dispatcher


def test_what_one_plugin_gives_back_others_may_take(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """One after the other, as all were quick: those that hold less than their share, though others wait before them."""
    ends = threading.Event()
    hold(dispatcher, ends, until, "ends", SHARE)
    for plugin in ("full", "full, too"):
        hold(dispatcher, release, until, plugin, SHARE)
    for plugin in ("one", "another"):
        hold(dispatcher, release, until, plugin, 1)
    done = {plugin: threading.Semaphore(0) for plugin in ("full", "one", "another")}
    for plugin in ("full", "one", "another", "one", "another"):
        submit(dispatcher, done[plugin].release, plugin)
    until(lambda: sum(load.queued for load in dispatcher.loads().values()) == 5)
    ends.set()
    for plugin in ("one", "another") * 2:
        assert done[plugin].acquire(timeout=20)
    assert dispatcher.loads()["full"] == (SHARE, 1, 0)


def test_a_thread_that_a_plugin_may_not_have_after_all_goes_to_another(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """Two that end at once let in two requests of one plugin, of which the first turns out to be slow."""
    ends, done = threading.Event(), threading.Event()
    hold(dispatcher, ends, until, "ends", SHARE)
    for plugin in ("full", "full, too"):
        hold(dispatcher, release, until, plugin, SHARE)
    for plugin in ("slow", "quick"):
        hold(dispatcher, release, until, plugin, 1)
    for _ in range(2):
        submit(dispatcher, lambda: release.wait(20), "slow")
    submit(dispatcher, done.set, "quick")
    until(lambda: sum(load.queued for load in dispatcher.loads().values()) == 3)
    ends.set()
    assert done.wait(10)  # before those that it waits for end by themselves


def test_a_request_that_needs_no_thread_after_all_keeps_no_other_waiting(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """The thread that it was let in for goes to the next one."""

    def rest() -> None:
        about_to_wait(long=True)
        release.wait(20)

    ends, done = threading.Event(), threading.Event()
    hold(dispatcher, ends, until, "slow", SHARE)
    for run in (rest, rest, done.set):
        submit(dispatcher, run, "slow")
    until(lambda: dispatcher.loads()["slow"].queued == 3)
    ends.set()
    assert done.wait(10)  # before those that it waits for end by themselves
