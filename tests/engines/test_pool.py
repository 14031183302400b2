"""The threads of an engine: every job is done once, whatever the others do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from plughost.engines.pool import Pool

THREADS = 4


@contextmanager
def pool_of(threads: int = THREADS) -> Iterator[Pool]:
    """Run a pool, and see that it ends."""
    pool = Pool(threads, "tested")
    pool.count_in()
    yield pool
    assert pool.close(30)


def compute() -> None:
    """Keep Python busy for a moment."""
    sum(range(5000))


def keep_busy(pool: Pool, jobs: int = 6000) -> None:
    """Have more computed than one thread can for long enough that the pool notices."""
    done = threading.Semaphore(0)

    def job() -> None:
        compute()
        done.release()

    for _ in range(16):
        pool.submit(job)
    for _ in range(jobs):
        done.acquire()
        pool.submit(job)


@pytest.mark.parametrize("threads", [1, 2, THREADS])
def test_every_job_is_done_once(threads: int) -> None:
    """Jobs of several submitters are all done, each once."""
    numbers = count()
    done: list[int] = []
    with pool_of(threads) as pool:

        def submit() -> None:
            for _ in range(3000):
                pool.submit(lambda: done.append(next(numbers)))

        submitters = [threading.Thread(target=submit) for _ in range(3)]
        for each in submitters:
            each.start()
        for each in submitters:
            each.join()
    assert sorted(done) == list(range(9000))


def test_jobs_begin_in_their_order() -> None:
    """One thread takes them as they came."""
    begun: list[int] = []
    with pool_of(1) as pool:
        for number in range(1000):
            pool.submit(lambda number=number: begun.append(number))  # type: ignore[misc] # mypy can't type a lambda's default
    assert begun == list(range(1000))


@pytest.mark.parametrize("busy_before", [False, True])
def test_as_many_jobs_as_threads_run_at_once(busy_before: bool) -> None:
    """Jobs that wait for each other all run, also where one thread took all jobs just before."""
    with pool_of() as pool:
        if busy_before:
            keep_busy(pool)
        together = threading.Barrier(THREADS + 1)
        for _ in range(THREADS):
            pool.submit(lambda: together.wait(30))
        together.wait(30)
        assert not together.broken


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="this system does not tell threads' CPU times")
def test_one_thread_takes_the_jobs_that_keep_a_core_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the clocks tell that one core is always busy, a long row of jobs is done by one and the same thread."""
    monkeypatch.setattr(time, "clock_gettime", lambda clock: time.perf_counter() / (THREADS + 1))
    done_by: list[int] = []
    done = threading.Semaphore(0)

    def job() -> None:
        compute()
        done_by.append(threading.get_ident())
        done.release()

    with pool_of() as pool:
        for _ in range(16):
            pool.submit(job)
        for _ in range(60_000):
            done.acquire()
            if len(done_by) > 3000 and len(set(done_by[-3000:-16])) == 1:
                break
            pool.submit(job)
        else:
            pytest.fail("all threads went on taking jobs")


def test_a_job_that_takes_long_holds_up_no_other() -> None:
    """In the middle of others that only compute, jobs wait for one that comes after them."""
    with pool_of() as pool:
        for _ in range(10):
            keep_busy(pool, jobs=500)
            going_on, gone_on = threading.Event(), threading.Semaphore(0)

            def wait(going_on: threading.Event = going_on, gone_on: threading.Semaphore = gone_on) -> None:
                assert going_on.wait(30)
                gone_on.release()

            for _ in range(THREADS - 1):
                pool.submit(wait)
            for _ in range(100):
                pool.submit(compute)
            pool.submit(going_on.set)
            for _ in range(THREADS - 1):
                assert gone_on.acquire(timeout=30)


def test_a_job_that_raises_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the next one is done."""

    def fail() -> None:
        raise RuntimeError("broken")

    done = threading.Event()
    with caplog.at_level(logging.ERROR), pool_of(1) as pool:
        pool.submit(fail)
        pool.submit(done.set)
    assert done.is_set()
    assert "a job of an engine failed" in caplog.text


def test_closing_does_the_jobs_that_wait() -> None:
    """What was submitted is done before the threads end, also where one thread took all jobs just before."""
    done: list[None] = []
    with pool_of() as pool:
        keep_busy(pool)
        for _ in range(2000):
            pool.submit(lambda: done.append(None))
    assert len(done) == 2000


def test_closing_waits_no_longer_than_it_may() -> None:
    """A job that goes on is left to itself, and told of."""
    going_on = threading.Event()
    pool = Pool(2, "tested")
    pool.submit(lambda: going_on.wait(30))
    assert not pool.close(0.1)
    going_on.set()
    assert pool.close(30)
