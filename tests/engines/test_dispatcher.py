"""Of all threads that answer requests one is active; who takes long gives way, and holds no more than its share."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.engines.dispatching import QUEUE, SHARE, THREADS, Receivers, Task, hold, submit

from plughost._servers.dispatcher import Dispatcher
from plughost._servers.work import FunctionJob
from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    from tests.engines.conftest import Until


def test_every_job_is_done_once(dispatcher: Dispatcher) -> None:
    """Jobs of several submitters are all done, each once."""
    done: list[int] = []
    finished = threading.Semaphore(0)

    def job(number: int) -> None:
        done.append(number)
        finished.release()

    def submit_some(first: int) -> None:
        for number in range(first, first + 3000):
            submit(dispatcher, partial(job, number))

    submitters = [threading.Thread(target=submit_some, args=(number * 3000,)) for number in range(3)]
    for each in submitters:
        each.start()
    for _ in range(9000):
        assert finished.acquire(timeout=20)
    assert sorted(done) == list(range(9000))


def test_quick_jobs_run_one_after_the_other_in_their_order(dispatcher: Dispatcher) -> None:
    """However many threads there are, those that have nothing to wait for don't meet."""
    running, most, begun = 0, 0, []
    finished = threading.Semaphore(0)

    def job(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.append(number)
        running -= 1
        finished.release()

    for number in range(500):
        submit(dispatcher, partial(job, number))
    for _ in range(500):
        assert finished.acquire(timeout=20)
    assert begun == sorted(begun)
    assert most == 1


def test_plugins_take_turns(dispatcher: Dispatcher) -> None:
    """However many requests of a plugin wait, the next of another one comes after one of these."""
    done: list[str] = []
    finished = threading.Semaphore(0)

    def job(plugin: str) -> None:
        done.append(plugin)
        finished.release()

    def ask() -> None:  # within the turn, so that all wait for it
        for plugin in ["long"] * 5 + ["short"] * 2:
            submit(dispatcher, partial(job, plugin), plugin)

    submit(dispatcher, ask)
    for _ in range(7):
        assert finished.acquire(timeout=20)
    assert done == ["long", "short", "long", "short", "long", "long", "long"]


def test_a_slow_job_gives_way(dispatcher: Dispatcher, release: threading.Event, until: Until) -> None:
    """While one waits, the next are done by another thread."""
    hold(dispatcher, release, until, "slow", 1)
    done = threading.Event()
    submit(dispatcher, done.set, "quick")
    assert done.wait(20)
    assert dispatcher.loads()["slow"].held == 1
    release.set()
    until(lambda: dispatcher.loads()["slow"].held == 0)


@pytest.mark.parametrize("plugin", ["", "stored"], ids=["in turn", "in pool"])
@pytest.mark.parametrize("says_so", [False, True], ids=["is seen", "says so"])
def test_a_job_is_told_that_it_takes_long(dispatcher: Dispatcher, plugin: str, says_so: bool) -> None:
    """Whether it is seen to, or says so itself, and whether it has the turn or not; a quick one is not told."""

    def take_long() -> None:
        if says_so:
            about_to_wait(long=True)
        assert slow.slow.wait(20)
        done.set()

    dispatcher.blocking_plugins = {"stored": ()}
    done = threading.Event()
    engine = Receivers(dispatcher, 3, alone=False)
    slow, quick = Task(dispatcher, take_long, plugin), Task(dispatcher, lambda: None, plugin)
    for each in (quick, slow):
        engine.give(each)
    assert done.wait(20)
    engine.close()
    assert not quick.slow.is_set()


def test_a_plugin_holds_no_more_than_its_share(dispatcher: Dispatcher, release: threading.Event, until: Until) -> None:
    """What else it is asked waits in its own queue, and others are served."""
    hold(dispatcher, release, until, "slow", SHARE)
    late, done = threading.Event(), threading.Event()
    submit(dispatcher, late.set, "slow")
    submit(dispatcher, done.set, "quick")
    assert done.wait(20)
    assert not late.is_set()
    assert dispatcher.loads()["slow"] == (SHARE, 1, 0)
    release.set()
    assert late.wait(20)


def test_a_full_queue_refuses(dispatcher: Dispatcher, release: threading.Event, until: Until) -> None:
    """The request after the last that may wait is refused at once, and counted."""
    hold(dispatcher, release, until, "slow", SHARE)
    waiting = [submit(dispatcher, lambda: None, "slow") for _ in range(QUEUE)]
    refused = submit(dispatcher, lambda: None, "slow")
    assert refused.refused.wait(20)
    assert not any(each.refused.is_set() for each in waiting)
    assert dispatcher.loads()["slow"] == (SHARE, QUEUE, 1)


def test_responses_that_go_on_take_no_place_in_the_queue(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """However many of them wait for the plugin's threads, as many new requests may wait, too."""
    hold(dispatcher, release, until, "slow", SHARE)
    for number in range(QUEUE):
        rest = Task(dispatcher, lambda: None, "slow")
        rest.has_begun = True
        dispatcher.submit(rest)
        until(lambda number=number: dispatcher.loads()["slow"].queued == number + 1)  # type: ignore[misc] # mypy can't type a default
    late = threading.Event()
    fresh = submit(dispatcher, late.set, "slow")
    until(lambda: dispatcher.loads()["slow"].queued == QUEUE + 1)
    release.set()
    assert late.wait(20)
    assert not fresh.refused.is_set()


def test_all_that_wait_go_on_once_slow_ones_end(release: threading.Event, until: Until) -> None:
    """Those that waited are quick, and no slow one is left whose end could let in the next: each lets in the next."""
    dispatcher = Dispatcher(THREADS, queue_timeout=60)
    hold(dispatcher, release, until, "slow", SHARE)
    done = threading.Semaphore(0)
    for _ in range(40):
        submit(dispatcher, done.release, "slow")
    until(lambda: dispatcher.loads()["slow"] == (SHARE, 40, 0))
    release.set()
    assert all(done.acquire(timeout=20) for _ in range(40))
    until(lambda: dispatcher.loads()["slow"] == (0, 0, 0))
    assert dispatcher.close(20)


def test_who_waits_too_long_is_refused(release: threading.Event, until: Until) -> None:
    """Also where none of those before ever ends."""
    dispatcher = Dispatcher(THREADS, queue_timeout=0.05)
    hold(dispatcher, release, until, "slow", SHARE)
    ran = threading.Event()
    assert submit(dispatcher, ran.set, "slow").refused.wait(20)
    assert not ran.is_set()
    assert dispatcher.loads()["slow"] == (SHARE, 0, 1)
    release.set()
    assert dispatcher.close(20)


def test_what_was_begun_is_never_refused(release: threading.Event, until: Until) -> None:
    """The rest of a response, and a plugin's own jobs, wait for as long as it takes."""
    dispatcher = Dispatcher(THREADS, queue_limit=0, queue_timeout=0.05)
    hold(dispatcher, release, until, "slow", SHARE)
    done = threading.Semaphore(0)
    rest = Task(dispatcher, done.release, "slow")
    rest.has_begun = True
    for each in (rest, FunctionJob(rest.share, done.release)):
        dispatcher.submit(each)
    until(lambda: submit(dispatcher, lambda: None, "slow").refused.wait(0.2))
    release.set()
    assert all(done.acquire(timeout=20) for _ in range(2))
    assert not rest.refused.is_set()
    assert dispatcher.close(20)


def test_a_plugin_that_holds_nothing_may_always_begin(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """However many others hold their share, the last to come is served."""
    for number in range(2 * THREADS):
        hold(dispatcher, release, until, f"slow{number}", 1)
    done = threading.Event()
    submit(dispatcher, done.set, "quick")
    assert done.wait(20)


@pytest.mark.parametrize("plugin", ["", "stored"], ids=["in turn", "in pool"])
def test_a_job_that_raises_ends_no_thread(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture, until: Until, plugin: str
) -> None:
    """It is logged, the next one is done, and the plugin holds nothing."""

    def fail() -> None:
        raise SystemExit

    dispatcher.blocking_plugins = {"stored": ()}
    done = threading.Event()
    engine = Receivers(dispatcher, 3, alone=False)
    with caplog.at_level(logging.ERROR):
        for each in (fail, done.set):
            engine.give(Task(dispatcher, each, plugin))
        assert done.wait(20)
        until(lambda: "was not answered" in caplog.text)
    until(partial(_is_load, dispatcher, plugin, 0, 0))
    engine.close()


def test_jobs_wait_while_the_system_allows_no_more_threads(
    dispatcher: Dispatcher, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are done once there is a thread: by whoever comes next, or by the watcher where nobody comes."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        submit(dispatcher, lambda: done.append("first"))
    submit(dispatcher, lambda: done.append("second"))
    until(lambda: done == ["first", "second"])
    released = threading.Event()
    submit(dispatcher, lambda: released.wait(20), "slow")
    until(lambda: dispatcher.loads()["slow"].held == 1)  # it is the only thread, and the watcher is awake
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        submit(dispatcher, lambda: done.append("third"))
    until(lambda: done[2:] == ["third"])
    released.set()


def test_closing_waits_no_longer_than_it_may(release: threading.Event) -> None:
    """A job that goes on is left to itself, and told of."""
    dispatcher = Dispatcher(2)
    entered = threading.Event()

    def job() -> None:
        entered.set()
        release.wait(20)

    submit(dispatcher, job)
    assert entered.wait(20)
    assert not dispatcher.close(0.1)
    release.set()
    assert dispatcher.close(20)


def test_closing_wakes_a_watcher_that_goes_to_sleep_at_that_moment(until: Until) -> None:
    """It has looked and found nothing to do, and does not sleep for ever."""
    dispatcher = Dispatcher(2)
    ended: list[bool] = []
    closing = threading.Thread(target=lambda: ended.append(dispatcher.close(20)))

    class Alarm(threading.Event):
        def clear(self) -> None:
            super().clear()
            closing.start()
            self.wait(20)
            super().clear()

    dispatcher._watcher_event = Alarm()
    submit(dispatcher, lambda: None)
    until(lambda: bool(ended))
    assert ended == [True]


def test_jobs_that_wait_for_long_hold_none_of_their_share(dispatcher: Dispatcher, release: threading.Event) -> None:
    """Also those that begin while nobody else waits: a later one of their plugin is done before they end."""

    def wait() -> None:
        about_to_wait(long=True)
        entered.release()
        release.wait(20)

    entered = threading.Semaphore(0)
    for _ in range(2 * SHARE):
        submit(dispatcher, wait, "waits")
        assert entered.acquire(timeout=20)
    done = threading.Event()
    submit(dispatcher, done.set, "waits")
    assert done.wait(20)
    assert dispatcher.loads()["waits"].held == 0
    release.set()


def test_jobs_that_wait_for_the_disk_give_way_at_once(dispatcher: Dispatcher) -> None:
    """More of one plugin wait together than it may hold with slow ones, so that they share what they wait for."""
    together = threading.Barrier(4 * SHARE + 1, timeout=20)

    def wait_for_the_disk() -> None:
        about_to_wait()
        together.wait()

    submit(dispatcher, lambda: together.wait() and None, "other")
    tasks = [submit(dispatcher, wait_for_the_disk, "stored") for _ in range(4 * SHARE)]
    done = threading.Event()
    submit(dispatcher, done.set, "stored")
    assert done.wait(20)
    assert not any(each.refused.is_set() for each in tasks)
    assert dispatcher.loads()["stored"].held == 0


def test_a_share_is_as_large_after_any_number_of_slow_jobs(dispatcher: Dispatcher, until: Until) -> None:
    """What a plugin held it may hold again, and no more; so may all plugins together."""
    plugins = [f"slow{number}" for number in range(THREADS // SHARE)]
    for _ in range(5):
        release = threading.Event()
        for plugin in plugins:
            hold(dispatcher, release, until, plugin, SHARE)
        hold(dispatcher, release, until, "last", 1)
        for plugin, held in (*((each, SHARE) for each in plugins), ("last", 1)):
            submit(dispatcher, lambda: None, plugin)
            until(partial(_is_load, dispatcher, plugin, held, 1))
        release.set()
        for plugin in (*plugins, "last"):
            until(partial(_is_load, dispatcher, plugin, 0, 0))


def test_so_many_of_a_plugin_give_their_turn_away_again_and_again(dispatcher: Dispatcher, until: Until) -> None:
    """Sixteen do so at once. One more counts as slow."""
    for _ in range(3):
        release, resting = threading.Event(), threading.Semaphore(0)

        def rest(release: threading.Event = release, resting: threading.Semaphore = resting) -> None:
            about_to_wait(long=True)
            resting.release()
            release.wait(20)

        for _ in range(16):
            submit(dispatcher, rest, "waits")
            assert resting.acquire(timeout=20)
        assert dispatcher.loads()["waits"] == (0, 0, 0)
        submit(dispatcher, rest, "waits")
        until(lambda: dispatcher.loads()["waits"] == (1, 0, 0))
        release.set()
        until(lambda: dispatcher.loads()["waits"] == (0, 0, 0) and dispatcher.share_of("waits").yielded == 0)


def test_a_plugin_may_hold_a_quarter_of_the_threads_and_at_least_two() -> None:
    """Unless another share is set."""
    assert [Dispatcher(threads).share_of("any").limit for threads in (1, 4, 8, 16)] == [2, 2, 2, 4]
    assert Dispatcher(16, share=7).share_of("any").limit == 7


def _is_load(dispatcher: Dispatcher, plugin: str, held: int, waiting: int) -> bool:
    return dispatcher.loads()[plugin] == (held, waiting, 0)
