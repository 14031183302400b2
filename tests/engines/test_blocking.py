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
    from tests.engines.conftest import WaitUntil

POOL = 10


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    """A dispatcher on one processor, whose blocking pool runs requests of `stored`."""
    made = Dispatcher(THREADS, queue_limit=QUEUE, queue_timeout=30, one_processor=True)
    made.pool.plugins = {"stored": ()}
    yield made
    assert made.close(20)


@pytest.fixture
def engine(dispatcher: Dispatcher, release: threading.Event) -> Iterator[Receivers]:
    """The threads of an engine."""
    receivers = Receivers(dispatcher, POOL + 4, alone=False)
    yield receivers
    release.set()
    receivers.close()


def fill(dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil) -> None:
    """Fill the plugin's places in the blocking pool with requests that wait."""
    for number in range(POOL):
        engine.send(Task(dispatcher, lambda: release.wait(20), "stored"))
        wait_until(partial(_is_load, dispatcher, number + 1, 0))


def test_the_blocking_pool_runs_ten_requests_at_once(dispatcher: Dispatcher, engine: Receivers) -> None:
    """They wait for each other, and none of them holds the turn."""
    together = threading.Barrier(POOL + 1, timeout=20)
    for _ in range(POOL):
        engine.send(Task(dispatcher, together.wait, "stored"))
    done = threading.Event()
    engine.send(Task(dispatcher, done.set, "other"))
    assert done.wait(20)
    together.wait()


def test_the_eleventh_request_waits_for_a_place(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil
) -> None:
    """It waits in its plugin's queue while other plugins are served, and runs after one of the ten has ended."""
    fill(dispatcher, engine, release, wait_until)
    late, done = threading.Event(), threading.Event()
    engine.send(Task(dispatcher, late.set, "stored"))
    wait_until(partial(_is_load, dispatcher, POOL, 1))
    engine.send(Task(dispatcher, done.set, "other"))
    assert done.wait(20)
    assert not late.is_set()
    release.set()
    assert late.wait(20)
    wait_until(partial(_is_load, dispatcher, 0, 0))
    wait_until(lambda: engine.group.held == 0)


def test_a_full_queue_of_the_blocking_pool_refuses(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil
) -> None:
    """The first request beyond the queue's limit is refused at once."""
    fill(dispatcher, engine, release, wait_until)
    waiting = [Task(dispatcher, lambda: None, "stored") for _ in range(QUEUE)]
    for number, each in enumerate(waiting):
        engine.send(each)
        wait_until(partial(_is_load, dispatcher, POOL, number + 1))
    refused = Task(dispatcher, lambda: None, "stored")
    engine.send(refused)
    assert refused.refused.wait(20)
    assert not any(each.refused.is_set() for each in waiting)
    assert dispatcher.loads()["stored"].refused == 1


def test_a_request_that_queues_too_long_for_the_blocking_pool_is_refused(
    release: threading.Event, wait_until: WaitUntil
) -> None:
    """The time limit applies even if no earlier request ever ends."""
    dispatcher = Dispatcher(THREADS, queue_limit=QUEUE, queue_timeout=0.05, one_processor=True)
    dispatcher.pool.plugins = {"stored": ()}
    engine = Receivers(dispatcher, POOL + 4, alone=False)
    fill(dispatcher, engine, release, wait_until)
    late = Task(dispatcher, lambda: None, "stored")
    engine.send(late)
    assert late.refused.wait(20)
    release.set()
    engine.close()
    assert dispatcher.close(20)


def test_a_request_that_computes_elsewhere_frees_its_place(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil
) -> None:
    """While ten requests hash passwords, for example, the next ones of their plugin are answered; this repeats."""

    def compute(release: threading.Event, begun: threading.Semaphore) -> None:
        about_to_wait(long=True)
        begun.release()
        release.wait(20)

    for _ in range(3):
        release, begun, done = threading.Event(), threading.Semaphore(0), threading.Event()
        for _ in range(POOL):
            engine.send(Task(dispatcher, partial(compute, release, begun), "stored"))
        assert all(begun.acquire(timeout=20) for _ in range(POOL))
        assert dispatcher.loads()["stored"] == (0, 0, 0)
        engine.send(Task(dispatcher, done.set, "stored"))
        assert done.wait(20)
        release.set()
        wait_until(lambda: dispatcher.share_of("stored").yielded == 0)


def test_a_slow_request_that_begins_to_compute_elsewhere_frees_its_place(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil
) -> None:
    """It was slow before, as on a busy machine; the next ones of its plugin are answered, too."""
    slow, resting = threading.Event(), threading.Event()

    def compute() -> None:
        slow.wait(20)
        about_to_wait(long=True)
        resting.set()
        release.wait(20)

    task = Task(dispatcher, compute, "stored")
    task.on_slow = slow.set  # type: ignore[method-assign] # the test is told
    engine.send(task)
    assert resting.wait(20)
    assert slow.is_set()
    assert dispatcher.loads()["stored"].held == 0
    release.set()
    wait_until(lambda: dispatcher.share_of("stored").yielded == 0)


def test_an_engine_without_a_free_thread_still_answers(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil
) -> None:
    """The dispatcher's own threads answer instead, and are reused."""
    engine = Receivers(dispatcher, 3, alone=False)
    for number in range(2):
        engine.send(Task(dispatcher, lambda: release.wait(20), f"slow{number}"))
        wait_until(lambda name=f"slow{number}": dispatcher.loads()[name].held == 1)  # type: ignore[misc] # a default binds it
    threads = set()
    for _ in range(20):
        done = threading.Event()

        def record(done: threading.Event = done) -> None:
            threads.add(threading.current_thread().name)
            done.set()

        engine.send(Task(dispatcher, record, "stored"))
        assert done.wait(20)
        wait_until(partial(_is_load, dispatcher, 0, 0))
    assert threads == {"plughost-requests"}
    assert len(dispatcher.threads.started) <= 4
    release.set()
    engine.close()


def test_a_request_is_refused_if_no_thread_can_be_started(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the system allows no more threads, the request holds no place in the pool."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    task = Task(dispatcher, lambda: None, "stored")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert not dispatcher.pool.run(task, "POST")
    dispatcher.submit(task)
    assert task.refused.wait(20)
    assert dispatcher.loads()["stored"] == (0, 0, 1)


def test_the_queues_of_the_turn_and_of_the_blocking_pool_are_separate(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil
) -> None:
    """A queued read runs when a slow read ends, even while writes fill the blocking pool."""
    fill(dispatcher, engine, release, wait_until)
    write, read = threading.Event(), threading.Event()
    engine.send(Task(dispatcher, write.set, "stored"))
    wait_until(partial(_is_load, dispatcher, POOL, 1))
    slow = threading.Event()
    share = dispatcher.share_of("stored").limit
    for number in range(share):
        submit(dispatcher, lambda: slow.wait(20), "stored")
        wait_until(partial(_is_load, dispatcher, POOL + number + 1, 1))
    submit(dispatcher, read.set, "stored")
    wait_until(partial(_is_load, dispatcher, POOL + share, 2))
    slow.set()
    assert read.wait(20)
    assert not write.is_set()
    release.set()
    assert write.wait(20)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor only on Linux")
def test_threads_share_a_processor_until_a_request_is_slow(
    dispatcher: Dispatcher, engine: Receivers, release: threading.Event, wait_until: WaitUntil
) -> None:
    """A long computation may use the other processors, and returns later. The main thread is never bound."""
    allowed = os.sched_getaffinity(0)
    shared = {dispatcher.processor._number}
    seen: dict[str, set[int]] = {}
    slow: list[int] = []
    done = threading.Semaphore(0)

    def record(when: str) -> None:
        seen[when] = os.sched_getaffinity(0)
        done.release()

    def record_slowly(when: str) -> None:
        about_to_wait(long=True)
        slow.append(threading.get_native_id())
        record(when)

    def record_when_overtaken(when: str) -> None:
        thread = threading.get_native_id()
        wait_until(lambda: os.sched_getaffinity(thread) == allowed)
        record(when)

    def record_in_a_job() -> None:
        with dispatcher.processor.unbound():
            record("in a job")

    for plugin in ("stored", "other"):
        engine.send(Task(dispatcher, partial(record_slowly, f"{plugin}, slow"), plugin))
        assert done.acquire(timeout=20)
        engine.send(Task(dispatcher, partial(record, plugin), plugin))
        assert done.acquire(timeout=20)
    engine.send(Task(dispatcher, partial(record_when_overtaken, "stored, overtaken"), "stored"))
    assert done.acquire(timeout=20)
    for last in (partial(record_when_overtaken, "overtaken"), record_in_a_job):
        submit(dispatcher, last, "other")
        assert done.acquire(timeout=20)
    wait_until(lambda: all(os.sched_getaffinity(thread) == shared for thread in slow))  # they are bound again
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


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor only on Linux")
def test_native_threads_avoid_the_shared_processor() -> None:
    """They would interrupt Python there. With a single processor, or without a shared one, they may use all."""
    allowed = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def record(bind: Callable[[], None]) -> None:
        bind()
        seen.append(os.sched_getaffinity(0))

    shared, free = Processor(shared=True), Processor(shared=False)
    for bind in (shared.bind, shared.avoid, free.bind, free.avoid):
        thread = threading.Thread(target=record, args=(bind,))
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
    ("allowed", "interrupts", "chosen"),
    [
        ({0, 1, 3, 4}, INTERRUPTS, [3, 0]),
        ({0, 1, 4}, INTERRUPTS, [0, 4]),
        ({1, 4}, INTERRUPTS, [4]),
        ({1}, INTERRUPTS, [1]),
        ({0, 1}, "", [0, 1]),
    ],
)
def test_the_shared_processor_is_one_with_few_interrupts(allowed: set[int], interrupts: str, chosen: list[int]) -> None:
    """It belongs to the less interrupted half of the allowed ones; without the system's counters, any will do."""
    assert least_interrupted(allowed, interrupts) == chosen


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor only on Linux")
def test_the_counters_of_this_system_are_understood() -> None:
    """Linux's interrupt counters can be parsed, and one of its processors is shared."""
    interrupts = Path("/proc/interrupts").read_text(encoding="ascii")
    allowed = os.sched_getaffinity(0)
    assert len(least_interrupted(allowed, interrupts)) == (len(allowed) + 1) // 2
    assert Processor(shared=True)._number in allowed
