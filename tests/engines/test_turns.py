"""The turn passes on, and waiting jobs run in their order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.engines.dispatching import Receivers, Task, hold, submit

from plughost._servers.dispatcher import Dispatcher
from plughost._servers.work import Backlog

if TYPE_CHECKING:
    from tests.engines.conftest import WaitUntil


def test_a_later_job_overtakes_no_earlier_one(dispatcher: Dispatcher) -> None:
    """Another plugin's request comes after those that waited before it."""
    backlog = Backlog()
    first, second, later = (Task(dispatcher, lambda: None, plugin) for plugin in ("long", "long", "short"))
    backlog.add(first)
    backlog.add(second)
    assert backlog.pop() is first
    backlog.add(later)
    assert [backlog.pop() for _ in range(3)] == [second, later, None]


def test_a_slow_job_starts_no_thread_while_nothing_waits(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """Another thread starts only when there is a job for it."""
    hold(dispatcher, release, wait_until, "slow", 1)
    with dispatcher.threads.lock:  # the turn has been passed on by now
        assert len(dispatcher.threads.started) == 1


def test_a_slow_job_loses_the_turn_after_an_idle_period(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """The watcher sleeps while nothing runs, and is woken."""
    submit(dispatcher, lambda: None)
    wait_until(lambda: dispatcher._watcher._thread is not None and dispatcher._watcher.is_asleep)
    hold(dispatcher, release, wait_until, "slow", 1)


def test_parked_threads_are_reused_after_an_engine_has_ended(dispatcher: Dispatcher, wait_until: WaitUntil) -> None:
    """An existing thread runs the jobs that wait behind another engine's slow job."""
    ended, engine = (Receivers(dispatcher, 2, alone=False) for _ in range(2))
    ended.close()
    submit(dispatcher, lambda: None)
    wait_until(lambda: dispatcher.threads.own.parked)
    done = threading.Event()

    def slow() -> None:
        submit(dispatcher, done.set, "quick")
        assert done.wait(20)

    engine.send(Task(dispatcher, slow, "slow"))
    assert done.wait(20)
    engine.close()
    assert len(dispatcher.threads.started) == 1


class TurnLock:
    """A lock that submits jobs once, just before or after its release."""

    def __init__(self, before: list[Task], after: list[Task], dispatcher: Dispatcher) -> None:
        """Store the jobs for before and after the release."""
        self._lock = threading.Lock()
        self._before = before
        self._after = after
        self._dispatcher = dispatcher
        self.acquire = self._lock.acquire

    def release(self) -> None:
        """Submit jobs, release the lock, and submit jobs."""
        while self._before:
            self._dispatcher.submit(self._before.pop())
        self._lock.release()
        while self._after:
            threading.Thread(target=self._dispatcher.submit, args=(self._after.pop(),), daemon=True).start()
            while not self._lock.locked():
                pass


@pytest.mark.parametrize("taken", [False, True], ids=["as it is let go", "just after"])
def test_a_job_that_arrives_while_the_turn_is_released_runs(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil, taken: bool
) -> None:
    """The releasing thread runs it, or a thread that takes the turn at that moment."""
    done = threading.Semaphore(0)
    before, after = ([Task(dispatcher, done.release)] if wanted else [] for wanted in (True, taken))
    dispatcher._turn = TurnLock(before, after, dispatcher)  # type: ignore[assignment] # it behaves as a lock
    submit(dispatcher, lambda: release.wait(20), "slow")
    for _ in range(1 + taken):
        assert done.acquire(timeout=20)
    assert dispatcher.loads()["slow"].held == 1


def test_closing_ends_if_no_thread_could_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for jobs that never began."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dispatcher = Dispatcher(2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        submit(dispatcher, lambda: None)
    assert dispatcher.close(20)
