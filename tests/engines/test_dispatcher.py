"""One request thread is active at a time; slow jobs yield the turn, and a plugin holds at most its share of threads."""

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
    from tests.engines.conftest import WaitUntil


def test_every_job_runs_exactly_once(dispatcher: Dispatcher) -> None:
    """Several threads submit jobs at the same time."""
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


def test_quick_jobs_run_one_at_a_time_in_order(dispatcher: Dispatcher) -> None:
    """Jobs that never wait don't overlap, however many threads there are."""
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
    """Requests of two plugins alternate, however many requests of one plugin wait."""
    done: list[str] = []
    finished = threading.Semaphore(0)

    def job(plugin: str) -> None:
        done.append(plugin)
        finished.release()

    def ask() -> None:  # inside the turn, so that all of them queue
        for plugin in ["long"] * 5 + ["short"] * 2:
            submit(dispatcher, partial(job, plugin), plugin)

    submit(dispatcher, ask)
    for _ in range(7):
        assert finished.acquire(timeout=20)
    assert done == ["long", "short", "long", "short", "long", "long", "long"]


def test_a_slow_job_yields_the_turn(dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil) -> None:
    """While one job waits, another thread runs the next ones."""
    hold(dispatcher, release, wait_until, "slow", 1)
    done = threading.Event()
    submit(dispatcher, done.set, "quick")
    assert done.wait(20)
    assert dispatcher.loads()["slow"].held == 1
    release.set()
    wait_until(lambda: dispatcher.loads()["slow"].held == 0)


@pytest.mark.parametrize("plugin", ["", "stored"], ids=["in turn", "in pool"])
@pytest.mark.parametrize("is_announced", [False, True], ids=["is noticed", "is announced"])
def test_a_slow_job_is_notified(dispatcher: Dispatcher, plugin: str, is_announced: bool) -> None:
    """The watcher notices it or the job announces it, in turn or in the pool; a quick job is not notified."""

    def take_long() -> None:
        if is_announced:
            about_to_wait(long=True)
        assert slow.slow.wait(20)
        done.set()

    dispatcher.pool.plugins = {"stored": ()}
    done = threading.Event()
    engine = Receivers(dispatcher, 3, alone=False)
    slow, quick = Task(dispatcher, take_long, plugin), Task(dispatcher, lambda: None, plugin)
    for each in (quick, slow):
        engine.send(each)
    assert done.wait(20)
    engine.close()
    assert not quick.slow.is_set()


def test_a_plugin_holds_no_more_than_its_share(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """Its further requests wait in its own queue, and other plugins are served."""
    hold(dispatcher, release, wait_until, "slow", SHARE)
    late, done = threading.Event(), threading.Event()
    submit(dispatcher, late.set, "slow")
    submit(dispatcher, done.set, "quick")
    assert done.wait(20)
    assert not late.is_set()
    assert dispatcher.loads()["slow"] == (SHARE, 1, 0)
    release.set()
    assert late.wait(20)


def test_a_full_queue_refuses(dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil) -> None:
    """The first request beyond the limit is refused at once, and counted."""
    hold(dispatcher, release, wait_until, "slow", SHARE)
    waiting = [submit(dispatcher, lambda: None, "slow") for _ in range(QUEUE)]
    refused = submit(dispatcher, lambda: None, "slow")
    assert refused.refused.wait(20)
    assert not any(each.refused.is_set() for each in waiting)
    assert dispatcher.loads()["slow"] == (SHARE, QUEUE, 1)


def test_continued_responses_take_no_place_in_the_queue(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """Any number of them may wait for the plugin's threads, and just as many new requests may wait as before."""
    hold(dispatcher, release, wait_until, "slow", SHARE)
    for number in range(QUEUE):
        rest = Task(dispatcher, lambda: None, "slow")
        rest.has_begun = True
        dispatcher.submit(rest)
        wait_until(lambda number=number: dispatcher.loads()["slow"].queued == number + 1)  # type: ignore[misc] # mypy can't type a default
    late = threading.Event()
    fresh = submit(dispatcher, late.set, "slow")
    wait_until(lambda: dispatcher.loads()["slow"].queued == QUEUE + 1)
    release.set()
    assert late.wait(20)
    assert not fresh.refused.is_set()


def test_all_queued_jobs_run_once_slow_ones_end(release: threading.Event, wait_until: WaitUntil) -> None:
    """The queued jobs are quick, so each must start the next: no slow job is left to do so."""
    dispatcher = Dispatcher(THREADS, queue_timeout=60)
    hold(dispatcher, release, wait_until, "slow", SHARE)
    done = threading.Semaphore(0)
    for _ in range(40):
        submit(dispatcher, done.release, "slow")
    wait_until(lambda: dispatcher.loads()["slow"] == (SHARE, 40, 0))
    release.set()
    assert all(done.acquire(timeout=20) for _ in range(40))
    wait_until(lambda: dispatcher.loads()["slow"] == (0, 0, 0))
    assert dispatcher.close(20)


def test_a_request_that_queues_too_long_is_refused(release: threading.Event, wait_until: WaitUntil) -> None:
    """The time limit applies even if no earlier request ever ends."""
    dispatcher = Dispatcher(THREADS, queue_timeout=0.05)
    hold(dispatcher, release, wait_until, "slow", SHARE)
    ran = threading.Event()
    assert submit(dispatcher, ran.set, "slow").refused.wait(20)
    assert not ran.is_set()
    assert dispatcher.loads()["slow"] == (SHARE, 0, 1)
    release.set()
    assert dispatcher.close(20)


def test_started_work_is_never_refused(release: threading.Event, wait_until: WaitUntil) -> None:
    """The rest of a response and a plugin's own jobs may wait for any time."""
    dispatcher = Dispatcher(THREADS, queue_limit=0, queue_timeout=0.05)
    hold(dispatcher, release, wait_until, "slow", SHARE)
    done = threading.Semaphore(0)
    rest = Task(dispatcher, done.release, "slow")
    rest.has_begun = True
    for each in (rest, FunctionJob(rest.share, done.release)):
        dispatcher.submit(each)
    wait_until(lambda: submit(dispatcher, lambda: None, "slow").refused.wait(0.2))
    release.set()
    assert all(done.acquire(timeout=20) for _ in range(2))
    assert not rest.refused.is_set()
    assert dispatcher.close(20)


def test_a_plugin_without_threads_may_always_start(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """Its request is served, however many other plugins hold their share."""
    for number in range(2 * THREADS):
        hold(dispatcher, release, wait_until, f"slow{number}", 1)
    done = threading.Event()
    submit(dispatcher, done.set, "quick")
    assert done.wait(20)


@pytest.mark.parametrize("plugin", ["", "stored"], ids=["in turn", "in pool"])
def test_a_job_that_raises_ends_no_thread(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil, plugin: str
) -> None:
    """Its exception is logged, the next job runs, and the plugin holds no thread."""

    def fail() -> None:
        raise SystemExit

    dispatcher.pool.plugins = {"stored": ()}
    done = threading.Event()
    engine = Receivers(dispatcher, 3, alone=False)
    with caplog.at_level(logging.ERROR):
        for each in (fail, done.set):
            engine.send(Task(dispatcher, each, plugin))
        assert done.wait(20)
        wait_until(lambda: "was not answered" in caplog.text)
    wait_until(partial(_is_load, dispatcher, plugin, 0, 0))
    engine.close()


def test_jobs_wait_while_no_thread_can_be_started(
    dispatcher: Dispatcher, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run once there is a thread: with the next job, or by the watcher if no job follows."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        submit(dispatcher, lambda: done.append("first"))
    submit(dispatcher, lambda: done.append("second"))
    wait_until(lambda: done == ["first", "second"])
    released = threading.Event()
    submit(dispatcher, lambda: released.wait(20), "slow")
    wait_until(lambda: dispatcher.loads()["slow"].held == 1)  # this is the only thread, and the watcher is awake
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        submit(dispatcher, lambda: done.append("third"))
    wait_until(lambda: done[2:] == ["third"])
    released.set()


def test_closing_waits_only_for_its_time_limit(release: threading.Event) -> None:
    """A job that still runs is left alone, and reported."""
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


def test_closing_wakes_a_watcher_that_is_falling_asleep(wait_until: WaitUntil) -> None:
    """The watcher has found nothing to do, and must not sleep for ever."""
    dispatcher = Dispatcher(2)
    ended: list[bool] = []
    closing = threading.Thread(target=lambda: ended.append(dispatcher.close(20)))

    class Alarm(threading.Event):
        def clear(self) -> None:
            super().clear()
            closing.start()
            self.wait(20)
            super().clear()

    dispatcher._watcher._event = Alarm()
    submit(dispatcher, lambda: None)
    wait_until(lambda: bool(ended))
    assert ended == [True]


def test_jobs_that_wait_for_long_use_no_share(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """This includes jobs without competitors: a later job of their plugin ends before they do."""

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
    wait_until(lambda: dispatcher.loads()["waits"].held == 0)  # the last job may have been slow to end
    release.set()


def test_jobs_that_wait_for_the_disk_yield_the_turn_at_once(dispatcher: Dispatcher) -> None:
    """More jobs of one plugin may wait together than its share of slow ones, so that they can share a commit."""
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


def test_a_slow_job_that_begins_to_wait_leaves_its_share(dispatcher: Dispatcher, wait_until: WaitUntil) -> None:
    """On a busy machine, a job may be slow before it yields: then, too, it keeps nobody of its plugin waiting."""
    release, resting = threading.Event(), threading.Semaphore(0)

    def compute_and_wait() -> None:
        wait_until(lambda: dispatcher.loads()["waits"].held == 1)
        about_to_wait(long=True)
        resting.release()
        release.wait(20)

    for _ in range(2 * SHARE):
        submit(dispatcher, compute_and_wait, "waits")
        assert resting.acquire(timeout=20)
        assert dispatcher.loads()["waits"].held == 0
    release.set()
    wait_until(lambda: dispatcher.loads()["waits"] == (0, 0, 0) and dispatcher.share_of("waits").yielded == 0)


def test_slow_jobs_do_not_change_the_size_of_a_share(dispatcher: Dispatcher, wait_until: WaitUntil) -> None:
    """After any number of slow jobs, a plugin, and all plugins together, may hold as many threads as before."""
    plugins = [f"slow{number}" for number in range(THREADS // SHARE)]
    for _ in range(5):
        release = threading.Event()
        for plugin in plugins:
            hold(dispatcher, release, wait_until, plugin, SHARE)
        hold(dispatcher, release, wait_until, "last", 1)
        for plugin, held in (*((each, SHARE) for each in plugins), ("last", 1)):
            submit(dispatcher, lambda: None, plugin)
            wait_until(partial(_is_load, dispatcher, plugin, held, 1))
        release.set()
        for plugin in (*plugins, "last"):
            wait_until(partial(_is_load, dispatcher, plugin, 0, 0))


def test_sixteen_jobs_of_a_plugin_may_yield_at_once(dispatcher: Dispatcher, wait_until: WaitUntil) -> None:
    """They may do so repeatedly. The seventeenth counts as slow."""
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
        wait_until(lambda: dispatcher.loads()["waits"] == (1, 0, 0))
        release.set()
        wait_until(lambda: dispatcher.loads()["waits"] == (0, 0, 0) and dispatcher.share_of("waits").yielded == 0)


def test_a_share_is_a_quarter_of_the_threads_and_at_least_two() -> None:
    """The setting `share` overrides this."""
    assert [Dispatcher(threads).share_of("any").limit for threads in (1, 4, 8, 16)] == [2, 2, 2, 4]
    assert Dispatcher(16, share=7).share_of("any").limit == 7


def _is_load(dispatcher: Dispatcher, plugin: str, held: int, waiting: int) -> bool:
    return dispatcher.loads()[plugin] == (held, waiting, 0)
