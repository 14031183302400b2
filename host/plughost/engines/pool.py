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
_SPELL_SECONDS: Final = 0.04  # over which it is judged how busy the threads are
_CORE: Final = (0.65, 1.25)  # seconds of CPU a second that one Python thread, or several in turns, may come to
_TRIAL: Final = 3  # spells
_LOSS: Final = 0.9  # so much of the jobs a second is as good as all: the measure is not finer
_MOST_PATIENCE: Final = 24
_TRUST: Final = 50  # spells after which it is tried again whether more threads are of use now
_MOST_TRUST: Final = 200


class Pool:
    """Threads that take jobs from one queue, in order.

    One thread at a time runs Python. Where the jobs do nothing but compute, a second one adds no work but only the
    switches between them. So while the threads keep one core busy for 40 ms, one of them is to take all the jobs, and
    another looks every 5 ms how that fares. Where the core is not busy any more or fewer jobs are done than before,
    since they wait for something, all of them take jobs again; where two looks find no job taken, since one takes long,
    one thread more does. What was found good is done at once with the next jobs that come, and put in doubt seconds
    later. Where the system can't tell how busy threads are, all of them always take jobs.

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
        self._looked = self._begun = self._spent = self._busy = self._rates = self._rate_before = 0.0
        self._taken = self._taken_before = self._taken_by_then = self._spells = 0
        self._stuck = False
        self._patience = _TRIAL  # how many spells in a row must keep a core busy
        self._trust = 0  # for how many spells it is known that one thread does as much
        self._next_trust = _TRUST
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
        moved = self._taken != self._taken_before
        self._taken_before = self._taken
        self._looked = now = time.perf_counter()
        narrow = self._width < self._count
        self._stuck = not moved and not self._stuck
        if not moved:
            if narrow and self._jobs:
                if self._stuck:  # for a moment, the machine may have been busy with something else
                    return
                self._regret(self._width + 1)
            else:  # nobody asks for anything: nobody need look
                self._patience = _TRIAL
                self._change(self._count)
            self._begin(now)
        elif now - self._begun > _SPELL_SECONDS:
            seconds = now - self._begun
            busy = (self._cpu_seconds() - self._spent) / seconds
            rate = (self._taken - self._taken_by_then) / seconds
            self._begin(now)
            self._spells += 1
            self._rates += rate
            self._busy += (busy - self._busy) / min(self._spells, _TRIAL)
            judge = self._judge_fewer if narrow else self._judge_all
            judge(_CORE[0] <= self._busy <= _CORE[1], self._rates / self._spells)

    def _judge_all(self, busy: bool, rate: float) -> None:
        """Draw the conclusion from the spells so far in which all threads took jobs.

        Args:
            busy: Whether they kept a core busy.
            rate: How many jobs a second they did.
        """
        if not busy:
            self._change(self._count)
        elif self._trust or self._spells >= self._patience:
            self._rate_before = rate
            self._change(1)

    def _judge_fewer(self, busy: bool, rate: float) -> None:
        """Draw the conclusion from the spells so far in which not all threads took jobs; see `_judge_all`."""
        on_trial = not self._trust
        if not busy or (on_trial and self._spells == _TRIAL and rate < _LOSS * self._rate_before):
            self._regret(self._count)
        elif on_trial and self._spells == _TRIAL:
            self._trust, self._next_trust = self._next_trust, min(_MOST_TRUST, self._next_trust * 2)
        elif self._trust == 1:
            self._trust, self._patience = 0, _TRIAL
            self._change(self._count)
        elif self._trust:
            self._trust -= 1

    def _regret(self, width: int) -> None:
        """Let more threads take jobs: that fewer did was wrong, so be slower to do it again."""
        self._patience = min(_MOST_PATIENCE, self._patience * 2)
        self._trust, self._next_trust = 0, _TRUST
        self._change(width)

    def _change(self, width: int) -> None:
        """Let so many threads take jobs, and wake those that have to know."""
        fewer = width < self._width
        self._width = min(width, self._count)
        self._spells = 0
        self._busy = self._rates = 0.0
        for _ in range(len(self._idle if fewer else self._jobs)):
            self._wake()

    def _begin(self, now: float) -> None:
        self._begun, self._spent, self._taken_by_then = now, self._cpu_seconds(), self._taken

    def _cpu_seconds(self) -> float:
        try:
            return sum(map(time.clock_gettime, self._clocks))
        except OSError:  # one of the threads has ended
            return 0.0
