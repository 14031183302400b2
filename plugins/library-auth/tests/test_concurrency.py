"""The semaphore is fair, and its queue is bounded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from plughost_library_auth.concurrency import FairSemaphore, TooBusy


def _queue(semaphore: FairSemaphore, seconds: float, most: int) -> list[int]:
    """Fill the queue behind a slot's holder, one thread at a time; return the order in which they got the slot."""
    done: list[int] = []

    def take(number: int) -> None:
        with semaphore.acquire(seconds):
            done.append(number)

    with ThreadPoolExecutor(most) as pool, semaphore.acquire(seconds):
        for number in range(most):
            pool.submit(take, number)
            until = time.monotonic() + 30
            while semaphore.waiting <= number and time.monotonic() < until:
                pass
        with pytest.raises(TooBusy), semaphore.acquire(seconds):
            pass
    take(most)
    return done


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 14), (0.2, 10), (0.5, 4), (3.0, 2)])
def test_the_queue_holds_work_of_two_seconds(seconds: float, most: int) -> None:
    """The waiting threads get the slot in order; one more is refused at once, and admitted when there is room."""
    assert _queue(FairSemaphore(1), seconds, most) == list(range(most + 1))


def test_a_thread_that_waits_too_long_is_refused() -> None:
    """It leaves the queue, so that the next ones get the slot."""
    semaphore = FairSemaphore(1, timeout=0.01)
    with semaphore.acquire(0.2):
        with pytest.raises(TooBusy), semaphore.acquire(0.2):
            pass
        assert semaphore.waiting == 0
    with semaphore.acquire(0.2):
        pass


def test_an_error_releases_the_slot() -> None:
    """After an exception, the next thread gets the slot."""
    semaphore = FairSemaphore(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"), semaphore.acquire(0.2):
            raise ValueError("wrong")
