"""Threads that receive jobs from an engine's channel never stop receiving, whatever holds the threads."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.engines.conftest import tokio_workers
from tests.engines.dispatching import Receivers, Task, submit
from tests.lanes import LANES, Lane

if TYPE_CHECKING:
    from tests.engines.conftest import Gate, Serve, WaitUntil

    from plughost._servers.dispatcher import Dispatcher


def holds_one(dispatcher: Dispatcher, plugin: str) -> bool:
    """Return whether a plugin holds one thread."""
    return dispatcher.loads()[plugin].held == 1


@pytest.mark.parametrize("alone", [False, True], ids=["any", "alone"])
def test_receivers_always_receive(
    dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil, alone: bool
) -> None:
    """An engine receives even if slow requests hold more threads than it has; so do two engines at once."""
    with ExitStack() as stack:
        engines = [Receivers(dispatcher, 3, alone=alone) for _ in range(2)]
        for each in engines:
            stack.callback(each.close)
        stack.callback(release.set)
        for round_ in range(4):
            for engine in engines:
                name = f"slow{round_}-{id(engine)}"
                engine.send(Task(dispatcher, lambda: release.wait(20), name))
                wait_until(partial(holds_one, dispatcher, name))
        for engine in engines:
            for number in range(50):
                done = threading.Event()
                engine.send(Task(dispatcher, done.set, f"quick{number}"))
                assert done.wait(20)


def test_all_receivers_but_one_park(dispatcher: Dispatcher, wait_until: WaitUntil) -> None:
    """If one thread at a time receives, the others wait for jobs that it hands over."""
    engine = Receivers(dispatcher, 4, alone=True)
    wait_until(lambda: len(engine.group.parked) == 3)
    engine.close()


@pytest.mark.parametrize("alone", [False, True], ids=["any", "alone"])
def test_receivers_receive_while_work_continues(dispatcher: Dispatcher, alone: bool) -> None:
    """A receiver soon passes on the turn, although more jobs wait, so that new requests don't starve."""
    ended = threading.Event()
    by: set[threading.Thread] = set()

    def again() -> None:
        by.add(threading.current_thread())
        if len(by) == 1:
            dispatcher.enqueue(lasting)
        else:
            ended.set()

    lasting = Task(dispatcher, again)
    lasting.has_begun = True
    with ExitStack() as stack:
        engine = Receivers(dispatcher, 3, alone=alone)
        stack.callback(engine.close)
        engine.send(lasting)
        assert ended.wait(20)


def test_receivers_pass_the_turn_on_to_each_other(dispatcher: Dispatcher, wait_until: WaitUntil) -> None:
    """A thread of the dispatcher would run the jobs at the same time as they receive, which takes longer."""
    ended = threading.Event()
    by: set[threading.Thread] = set()

    def again() -> None:
        by.add(threading.current_thread())
        if len(by) < 2:
            dispatcher.enqueue(lasting)
        else:
            ended.set()

    submit(dispatcher, lambda: None)
    wait_until(lambda: len(dispatcher.threads.own.parked) == 1)
    lasting = Task(dispatcher, again)
    engine = Receivers(dispatcher, 4, alone=True)
    wait_until(lambda: len(engine.group.parked) == 3)
    engine.send(lasting)
    assert ended.wait(20)
    assert by.isdisjoint(dispatcher.threads.started)
    engine.close()


@pytest.mark.parametrize("alone", [False, True], ids=["any", "alone"])
def test_receivers_lose_nothing_under_load(dispatcher: Dispatcher, alone: bool) -> None:
    """Quick requests of two engines and slow ones, which end when a later one has run, all run exactly once."""
    finished = threading.Semaphore(0)
    done: list[int] = []
    overtaken = {number: threading.Event() for number in range(0, 4000, 100)}

    def job(number: int) -> None:
        if number in overtaken:
            assert overtaken[number].wait(20)
        if number - 50 in overtaken:
            overtaken[number - 50].set()
        done.append(number)
        finished.release()

    with ExitStack() as stack:
        engines = [Receivers(dispatcher, 4, alone=alone) for _ in range(2)]
        for each in engines:
            stack.callback(each.close)
        for number in range(4000):
            task = Task(dispatcher, partial(job, number), f"plugin{number % 7}")
            task.has_begun = True  # so that none is refused
            engines[number % 2].send(task)
        for _ in range(4000):
            assert finished.acquire(timeout=20)
    assert sorted(done) == list(range(4000))


@pytest.mark.parametrize("alone", [False, True], ids=["any", "alone"])
def test_an_engine_receives_while_another_is_busy(dispatcher: Dispatcher, alone: bool) -> None:
    """With equal numbers of clients, neither engine completes less than a tenth of the other's requests."""
    done = [0, 0]
    ended = threading.Event()
    with ExitStack() as stack:
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(0.0005)  # as a host sets it
        engines = [Receivers(dispatcher, 3, alone=alone) for _ in done]
        for each in engines:
            stack.callback(each.close)

        def ask(number: int) -> None:
            sum(range(100_000))  # long enough for others to arrive
            done[number] += 1
            if sum(done) < 1000:
                engines[number].send(Task(dispatcher, partial(ask, number)))
            else:
                ended.set()

        for number in (0, 1) * 20:
            engines[number].send(Task(dispatcher, partial(ask, number)))
        assert ended.wait(60)
    assert min(done) > max(done) / 10, done


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows native threads")
@pytest.mark.parametrize("lane", LANES[1:], ids=str)
def test_granian_receives_while_its_only_thread_is_busy(
    lane: Lane, serve: Serve, gate: Gate, wait_until: WaitUntil
) -> None:
    """It starts one more thread before another request arrives, so that a simultaneous one doesn't wait."""
    before = tokio_workers()
    served = serve(gate, lane)
    at_first = len(tokio_workers() - before)
    with ThreadPoolExecutor(1) as pool, served.client() as client:
        response = pool.submit(client.get, "/held")
        gate.wait_until_entered()
        wait_until(lambda: len(tokio_workers() - before) > at_first)
        gate.opened.set()
        assert response.result().text == "/held"
