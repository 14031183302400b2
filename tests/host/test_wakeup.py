"""The queue that the main thread sleeps on, which signals and other threads ring."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from plughost._runtime.wakeup import StopRequests, WakeupQueue


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """What a handler of SIGUSR1 was called with."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_another_thread_takes_wakes_the_main_thread(handled: list[int]) -> None:
    """The system may give a signal to any thread, while Python runs its handler in the main thread only."""

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    with WakeupQueue() as queue:
        threading.Thread(target=take).start()
        assert queue.wait_until(lambda: bool(handled), 60)


def test_a_request_before_the_sleep_is_not_lost() -> None:
    """Whoever asked before somebody waits has asked; the wait for a second one goes on."""
    requests = StopRequests()
    requests.add()
    assert requests.wait(1, 60)
    threading.Thread(target=requests.add).start()
    assert requests.wait(2, 60)


def test_a_sleep_ends_with_its_time() -> None:
    """One that nobody wakes says that nothing came of it."""
    with WakeupQueue() as queue:
        queue.wake()
        assert not queue.wait_until(lambda: False, 0.01)
