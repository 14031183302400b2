"""Requests of plugins with stores run in the blocking pool, and all threads share one processor."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engines.dispatching import QUEUE, THREADS, Receivers, Task, submit

from plughost._servers.dispatcher import Dispatcher
from plughost._servers.processor import Processor, least_interrupted
from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    from tests.engines.conftest import Until

POOL = 10


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    """A dispatcher on one processor, whose blocking pool runs requests of `stored`."""
    made = Dispatcher(THREADS, queue_limit=QUEUE, queue_timeout=30, one_processor=True)
    made.blocking_plugins = {"stored": ()}
    yield made
    assert made.close(20)


@pytest.fixture
def engine(dispatcher: Dispatcher, release: threading.Event) -> Iterator[Receivers]:
    """The threads of an engine."""
    receivers = Receivers(dispatcher, POOL + 4, alone=False)
    yield receivers
    release.set()
    receivers.close()


def fill(dispatcher: Dispatcher, engine: Receivers, release: threading.Event, until: Until) -> None:
    """Have as many requests of the plugin wait for something as may be answered at once."""
    for number in range(POOL):
        engine.give(Task(dispatcher, lambda: release.wait(20), "stored"))
        until(partial(_is_load, dispatcher, number + 1, 0))


def test_ten_are_answered_at_once(dispatcher: Dispatcher, engine: Receivers) -> None:
    """Each waits for the others, and none of them is the active one that others wait for."""
    together = threading.Barrier(POOL + 1, timeout=20)
    for _ in range(POOL):
        engine.give(Task(dispatcher, together.wait, "stored"))
    done = threading.Event()
    engine.give(Task(dispatcher, done.set, "other"))
    assert done.wait(20)
    together.wait()


def test_the_next_waits_for_one_of_them(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, until: Until
) -> None:
    """It waits in its plugin's queue, while others are answered, and is done after one of those before it."""
    fill(dispatcher, engine, release, until)
    late, done = threading.Event(), threading.Event()
    engine.give(Task(dispatcher, late.set, "stored"))
    until(partial(_is_load, dispatcher, POOL, 1))
    engine.give(Task(dispatcher, done.set, "other"))
    assert done.wait(20)
    assert not late.is_set()
    release.set()
    assert late.wait(20)
    until(partial(_is_load, dispatcher, 0, 0))
    until(lambda: engine.group.held == 0)


def test_a_full_queue_refuses_beside_the_turn(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, until: Until
) -> None:
    """The request after the last that may wait is refused at once."""
    fill(dispatcher, engine, release, until)
    waiting = [Task(dispatcher, lambda: None, "stored") for _ in range(QUEUE)]
    for number, each in enumerate(waiting):
        engine.give(each)
        until(partial(_is_load, dispatcher, POOL, number + 1))
    refused = Task(dispatcher, lambda: None, "stored")
    engine.give(refused)
    assert refused.refused.wait(20)
    assert not any(each.refused.is_set() for each in waiting)
    assert dispatcher.loads()["stored"].refused == 1


def test_who_waits_too_long_beside_the_turn_is_refused(release: threading.Event, until: Until) -> None:
    """Also where none of those before ever ends."""
    dispatcher = Dispatcher(THREADS, queue_limit=QUEUE, queue_timeout=0.05, one_processor=True)
    dispatcher.blocking_plugins = {"stored": ()}
    engine = Receivers(dispatcher, POOL + 4, alone=False)
    fill(dispatcher, engine, release, until)
    late = Task(dispatcher, lambda: None, "stored")
    engine.give(late)
    assert late.refused.wait(20)
    release.set()
    engine.close()
    assert dispatcher.close(20)


def test_who_computes_elsewhere_lets_others_in(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, until: Until
) -> None:
    """Again and again: while ten hash passwords, say, the next ones of their plugin are answered."""

    def compute(release: threading.Event, begun: threading.Semaphore) -> None:
        about_to_wait(long=True)
        begun.release()
        release.wait(20)

    for _ in range(3):
        release, begun, done = threading.Event(), threading.Semaphore(0), threading.Event()
        for _ in range(POOL):
            engine.give(Task(dispatcher, partial(compute, release, begun), "stored"))
        assert all(begun.acquire(timeout=20) for _ in range(POOL))
        assert dispatcher.loads()["stored"] == (0, 0, 0)
        engine.give(Task(dispatcher, done.set, "stored"))
        assert done.wait(20)
        release.set()
        until(lambda: dispatcher.share_of("stored").yielded == 0)


def test_an_engine_whose_threads_others_hold_answers_all_the_same(
    dispatcher: Dispatcher, release: threading.Event, until: Until
) -> None:
    """Threads of the dispatcher do it, and are used again."""
    engine = Receivers(dispatcher, 3, alone=False)
    for number in range(2):
        engine.give(Task(dispatcher, lambda: release.wait(20), f"slow{number}"))
        until(lambda name=f"slow{number}": dispatcher.loads()[name].held == 1)  # type: ignore[misc] # a default binds it
    threads = set()
    for _ in range(20):
        done = threading.Event()

        def note(done: threading.Event = done) -> None:
            threads.add(threading.current_thread().name)
            done.set()

        engine.give(Task(dispatcher, note, "stored"))
        assert done.wait(20)
        until(partial(_is_load, dispatcher, 0, 0))
    assert threads == {"plughost-requests"}
    assert len(dispatcher._own_threads) <= 4
    release.set()
    engine.close()


def test_what_there_is_no_thread_for_is_refused(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system allows no more threads; it holds no place in the pool."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    task = Task(dispatcher, lambda: None, "stored")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert not dispatcher.run_in_pool(task, "POST")
    dispatcher.submit(task)
    assert task.refused.wait(20)
    assert dispatcher.loads()["stored"] == (0, 0, 1)


def test_those_that_wait_for_the_turn_and_for_a_place_beside_it_do_not_mix(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, until: Until
) -> None:
    """A read that has to wait goes on when a slow one ends, though writes hold and fill all places."""
    fill(dispatcher, engine, release, until)
    write, read = threading.Event(), threading.Event()
    engine.give(Task(dispatcher, write.set, "stored"))
    until(partial(_is_load, dispatcher, POOL, 1))
    slow = threading.Event()
    share = dispatcher.share_of("stored").limit
    for number in range(share):
        submit(dispatcher, lambda: slow.wait(20), "stored")
        until(partial(_is_load, dispatcher, POOL + number + 1, 1))
    submit(dispatcher, read.set, "stored")
    until(partial(_is_load, dispatcher, POOL + share, 2))
    slow.set()
    assert read.wait(20)
    assert not write.is_set()
    release.set()
    assert write.wait(20)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor on Linux alone")
def test_threads_share_a_processor_until_a_request_takes_long(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, until: Until
) -> None:
    """What computes for long may use the others, and comes back. The main thread is never bound."""
    allowed = os.sched_getaffinity(0)
    shared = {dispatcher.processor._number}
    seen: dict[str, set[int]] = {}
    slow: list[int] = []
    done = threading.Semaphore(0)

    def look(when: str) -> None:
        seen[when] = os.sched_getaffinity(0)
        done.release()

    def look_slowly(when: str) -> None:
        about_to_wait(long=True)
        slow.append(threading.get_native_id())
        look(when)

    def look_when_overtaken(when: str) -> None:
        thread = threading.get_native_id()
        until(lambda: os.sched_getaffinity(thread) == allowed)
        look(when)

    def look_in_a_job() -> None:
        with dispatcher.processor.unbound():
            look("in a job")

    for plugin in ("stored", "other"):
        engine.give(Task(dispatcher, partial(look_slowly, f"{plugin}, slow"), plugin))
        assert done.acquire(timeout=20)
        engine.give(Task(dispatcher, partial(look, plugin), plugin))
        assert done.acquire(timeout=20)
    engine.give(Task(dispatcher, partial(look_when_overtaken, "stored, overtaken"), "stored"))
    assert done.acquire(timeout=20)
    for last in (partial(look_when_overtaken, "overtaken"), look_in_a_job):
        submit(dispatcher, last, "other")
        assert done.acquire(timeout=20)
    until(lambda: all(os.sched_getaffinity(thread) == shared for thread in slow))  # they have come back
    assert seen == {
        "stored": shared,
        "stored, slow": allowed,
        "other": shared,
        "other, slow": allowed,
        "overtaken": allowed,
        "stored, overtaken": allowed,
        "in a job": allowed,
    }
    assert os.sched_getaffinity(0) == allowed


def _is_load(dispatcher: Dispatcher, held: int, waiting: int) -> bool:
    return dispatcher.loads()["stored"][:2] == (held, waiting)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor on Linux alone")
def test_native_threads_are_kept_off_the_shared_processor() -> None:
    """There, they would interrupt whoever runs Python. Where there is one alone, or none is shared, they use all."""
    allowed = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def look(bind: Callable[[], None]) -> None:
        bind()
        seen.append(os.sched_getaffinity(0))

    shared, free = Processor(shared=True), Processor(shared=False)
    for bind in (shared.bind, shared.avoid, free.bind, free.avoid):
        thread = threading.Thread(target=look, args=(bind,))
        thread.start()
        thread.join()
    assert len(seen[0]) == 1
    assert seen[1:] == [allowed - seen[0] or allowed, allowed, allowed]


INTERRUPTS = """\
            CPU0       CPU1       CPU3       CPU4
  1:           9          0          4          0  IO-APIC   1-edge  i8042
 36:           5        900          0         20  PCI-MSIX  1-edge  disk
NMI:           0          0     999999          0  Non-maskable interrupts
LOC:           1          2     999999          4  Local timer interrupts
ERR:           0
"""


@pytest.mark.parametrize(
    ("allowed", "told", "chosen"),
    [
        ({0, 1, 3, 4}, INTERRUPTS, [3, 0]),
        ({0, 1, 4}, INTERRUPTS, [0, 4]),
        ({1, 4}, INTERRUPTS, [4]),
        ({1}, INTERRUPTS, [1]),
        ({0, 1}, "", [0, 1]),
    ],
)
def test_the_shared_processor_is_one_that_devices_interrupt_little(
    allowed: set[int], told: str, chosen: list[int]
) -> None:
    """It is of the quieter half of those that may be used, or any where the system doesn't tell."""
    assert least_interrupted(allowed, told) == chosen


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor on Linux alone")
def test_this_system_tells_which_processors_are_least_interrupted() -> None:
    """What Linux tells is understood, and one of its processors is shared."""
    told = Path("/proc/interrupts").read_text(encoding="ascii")
    allowed = os.sched_getaffinity(0)
    assert len(least_interrupted(allowed, told)) == (len(allowed) + 1) // 2
    assert Processor(shared=True)._number in allowed
