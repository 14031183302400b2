"""A thread pool for an application in Python, where more threads than are of use get into each other's way."""

from __future__ import annotations

import logging
import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from typing import Final

Job = Callable[[], object]

_LOGGER: Final = logging.getLogger("plughost.engines")
_LOOK_SECONDS: Final = 0.005
_CORE: Final = (0.6, 1.25)  # seconds of CPU a second that a single Python thread, or several in turns, may come to
_SURE: Final = 4  # so many looks in a row find a core busy before it is believed
_DOUBT: Final = 400  # after so many looks it is tried whether another number of threads is better now


class Pool:
    """Threads that take jobs from one queue, in order.

    One thread at a time runs Python. Where the jobs do nothing but compute, a second one adds no work but only the
    switches between them. So as long as the threads keep one core busy while jobs wait, they are made to take turns:
    one of them takes all the jobs. Every 5 ms one of the others looks whether that still holds. Where the core is not
    busy, since jobs wait for something, all of them take jobs again; where no job was taken, since one takes long, one
    thread more does. Where the system can't tell how busy threads are, all of them always do.

    Args:
        threads: How many.
        name: What their names begin with.
    """

    def __init__(self, threads: int, name: str) -> None:
        """Start the threads."""
        self._count = threads
        self._width = threads  # how many may take jobs
        self._jobs: deque[Job | None] = deque()
        self._idle: list[LockType] = []  # what each thread without work waits for; the last one is woken first
        self._watching = allocate_lock()
        self._clocks: list[int] = []
        self._looked = 0.0
        self._spent = 0.0
        self._taken = self._taken_before = self._looks = 0
        self._patience = _SURE  # how many looks in a row must find a core busy
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def count_in(self) -> None:
        """Count the calling thread, an engine's loop, among those that may keep a core busy together."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clocks.append(time.pthread_getcpuclockid(threading.get_ident()))

    def submit(self, job: Job) -> None:
        """Have a job done."""
        self._jobs.append(job)
        running = self._count - len(self._idle)
        if running < self._width:
            self._wake()
        if running and self._width == self._count > 1 and time.perf_counter() - self._looked > _LOOK_SECONDS:
            self._look()

    def close(self, timeout: float) -> bool:
        """End the threads after the jobs that are queued.

        Args:
            timeout: Seconds to wait for them.

        Returns:
            Whether all have ended.
        """
        self._width = self._count
        self._clocks.clear()
        for _ in self._threads:
            self._jobs.append(None)
            self._wake()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _wake(self) -> None:
        try:
            self._idle.pop().release()
        except IndexError:  # the last one has found work meanwhile
            return

    # In the threads.

    def _work(self) -> None:
        self.count_in()
        woken = allocate_lock()
        woken.acquire()
        jobs = self._jobs
        while True:
            if self._count - len(self._idle) > self._width:
                self._rest(woken)
                continue
            try:
                job = jobs.popleft()
            except IndexError:
                self._rest(woken)
                continue
            if job is None:
                return
            self._taken += 1
            try:
                job()
            except Exception:
                _LOGGER.exception("a job of an engine failed")

    def _rest(self, woken: LockType) -> None:
        """Wait until there is work; one of those that are to leave the jobs to others looks how they fare."""
        watches = self._width < self._count and self._watching.acquire(blocking=False)
        self._idle.insert(0 if watches else len(self._idle), woken)
        if self._jobs and self._count - len(self._idle) < self._width:  # a job that came just before
            try:
                self._idle.remove(woken)
            except ValueError:  # woken for it
                woken.acquire()
        elif watches:
            while not woken.acquire(timeout=_LOOK_SECONDS if self._width < self._count else -1):
                self._look()
        else:
            woken.acquire()
        if watches:
            self._watching.release()

    def _look(self) -> None:
        """Decide how many threads may take jobs."""
        now, spent = time.perf_counter(), self._cpu_seconds()
        busy = (spent - self._spent) / max(now - self._looked, _LOOK_SECONDS / 10)
        moved = self._taken != self._taken_before
        self._looked, self._spent, self._taken_before = now, spent, self._taken
        self._looks += 1
        narrow = self._width < self._count
        if narrow and self._jobs and (not moved or busy < _CORE[0]):  # that was wrong: be slower to do it again
            self._patience = min(_DOUBT, self._patience * 4)
            self._change(self._count if moved else self._width + 1)
        elif not (moved and _CORE[0] <= busy <= _CORE[1]):
            self._change(self._count)
        elif narrow and self._looks > _DOUBT:
            self._patience = _SURE
            self._change(self._count)
        elif not narrow and self._looks >= self._patience:
            self._change(1)

    def _change(self, width: int) -> None:
        """Let so many threads take jobs, and wake those that have to know."""
        fewer = width < self._width
        self._width = min(width, self._count)
        self._looks = 0
        for _ in range(len(self._idle if fewer else self._jobs)):
            self._wake()

    def _cpu_seconds(self) -> float:
        try:
            return sum(map(time.clock_gettime, self._clocks))
        except OSError:  # one of the threads has ended
            return 0.0
