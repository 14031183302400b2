"""The turn passes on, and what waits for it is done in its order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.engines.dispatching import Receivers, Task, hold, submit

from plughost._servers.dispatcher import Dispatcher
from plughost._servers.work import Backlog

if TYPE_CHECKING:
    from tests.engines.conftest import Until


def test_what_comes_later_overtakes_nothing_that_waits(dispatcher: Dispatcher) -> None:
    """The request of another plugin comes after those that were there before it."""
    backlog = Backlog()
    first, second, later = (Task(dispatcher, lambda: None, plugin) for plugin in ("long", "long", "short"))
    backlog.add(first)
    backlog.add(second)
    assert backlog.pop() is first
    backlog.add(later)
    assert [backlog.pop() for _ in range(3)] == [second, later, None]


def test_what_is_next_is_told_before_it_is_taken(dispatcher: Dispatcher) -> None:
    """Whether it has just come or waits for its plugin's turn; nothing is told where nothing waits."""
    backlog = Backlog()
    assert backlog.peek() is None
    for each in [Task(dispatcher, lambda: None) for _ in range(3)]:
        backlog.add(each)
    for _ in range(3):
        told = backlog.peek()
        assert told is not None
        assert backlog.pop() is told


def test_a_slow_job_costs_no_thread_while_nothing_waits(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """Another one is started once there is something for it to do."""
    hold(dispatcher, release, until, "slow", 1)
    with dispatcher._lock:  # the turn has been passed on
        assert len(dispatcher._own_threads) == 1


def test_a_slow_job_loses_the_turn_after_idle_time(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """The watcher sleeps while nothing runs, and is woken."""
    submit(dispatcher, lambda: None)
    until(lambda: dispatcher._watcher is not None and dispatcher._is_watcher_asleep)
    hold(dispatcher, release, until, "slow", 1)


def test_parked_threads_are_used_again_though_an_engine_has_ended(dispatcher: Dispatcher, until: Until) -> None:
    """What a slow job of another engine leaves undone is done by a thread that is there already."""
    ended, engine = (Receivers(dispatcher, 2, alone=False) for _ in range(2))
    ended.close()
    submit(dispatcher, lambda: None)
    until(lambda: dispatcher._own_group.parked)
    done = threading.Event()

    def slow() -> None:
        submit(dispatcher, done.set, "quick")
        assert done.wait(20)

    engine.give(Task(dispatcher, slow, "slow"))
    assert done.wait(20)
    engine.close()
    assert len(dispatcher._own_threads) == 1


class Turn:
    """A lock, and what happens once in the moment in which it is let go of."""

    def __init__(self, before: list[Task], after: list[Task], dispatcher: Dispatcher) -> None:
        """Have jobs come before or after it is free."""
        self._lock = threading.Lock()
        self._before = before
        self._after = after
        self._dispatcher = dispatcher
        self.acquire = self._lock.acquire

    def release(self) -> None:
        """Let go of it."""
        while self._before:
            self._dispatcher.submit(self._before.pop())
        self._lock.release()
        while self._after:
            threading.Thread(target=self._dispatcher.submit, args=(self._after.pop(),), daemon=True).start()
            while not self._lock.locked():
                pass


@pytest.mark.parametrize("taken", [False, True], ids=["as it is let go", "just after"])
def test_what_comes_while_a_slow_job_lets_go_of_the_turn_is_done(
    dispatcher: Dispatcher, release: threading.Event, until: Until, taken: bool
) -> None:
    """By whoever lets go of it, or by another that takes it at that moment."""
    done = threading.Semaphore(0)
    before, after = ([Task(dispatcher, done.release)] if wanted else [] for wanted in (True, taken))
    dispatcher._turn = Turn(before, after, dispatcher)  # type: ignore[assignment] # as a lock does
    submit(dispatcher, lambda: release.wait(20), "slow")
    for _ in range(1 + taken):
        assert done.acquire(timeout=20)
    assert dispatcher.loads()["slow"].held == 1


def test_closing_ends_though_no_thread_could_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never began is not waited for."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dispatcher = Dispatcher(2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        submit(dispatcher, lambda: None)
    assert dispatcher.close(20)
