"""Requests that are answered beside the turn: those that wait for a disk or another process for much of their time.

That is what a plugin with a store is asked, but for reads of SQLite, which wait for nothing. Up to ten threads
answer such requests of one plugin, so that they overlap and writes share a commit. Further ones wait for these.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from plughost._api.host import Load
from plughost._servers.processor import Processor
from plughost._servers.work import Crew, Job, Lane, Spot
from plughost._waiting import this_thread

MOST_RESTING: Final = 16
"""Requests of one plugin that wait or compute elsewhere, beside those that it holds a thread with."""

_LOGGER: Final = logging.getLogger("plughost._servers")


class Beside:
    """What each plugin takes of the threads, and those that are beside the turn.

    Args:
        share: As the dispatcher has it; so are `queue` and `one_processor`.
        most: How many threads answer a plugin's requests beside the turn.

    Attributes:
        lanes: What each plugin takes of the threads, by name.
        processor: What all threads share, or nothing.
        beside: Each plugin with a store, and its methods that take turns with all others nevertheless.
    """

    def __init__(self, share: int, most: int, queue: int, one_processor: bool) -> None:
        self.lanes: dict[str, Lane] = {}
        self.beside: Mapping[str, Collection[str]] = {}
        self._share = share
        self._most_beside = most
        self._queue = queue
        self.processor: Processor = Processor(shared=one_processor)
        self._guard: LockType = allocate_lock()  # around all counts
        self._own = Crew(sys.maxsize)
        self._started: list[threading.Thread] = []
        self._idle: list[Spot] = []
        self._running: dict[int, Job | None] = {}  # what is done beside the turn, by thread; None if that is let go
        self._long: deque[Job] = deque()  # what is to be told that it takes long
        self._asleep = True
        self._give_way_beside = self._rest_beside

    def lane(self, name: str) -> Lane:
        """Return what a plugin takes of the threads."""
        return self.lanes.get(name) or self.lanes.setdefault(name, Lane(name, self._share))

    def loads(self) -> Mapping[str, Load]:
        """Return what each plugin takes of the threads at the moment, by name."""
        return {
            name: Load(lane.held + lane.beside, len(lane.waiting) + len(lane.waiting_beside), lane.refused)
            for name, lane in tuple(self.lanes.items())
        }

    def _take_part(self, give_way: Callable[[bool], None]) -> int:
        """Let this thread answer requests, and give way to others so; return the system's id of it."""
        here = this_thread
        if here.give_way is not give_way:
            if here.give_way is None:
                self.processor.join()
            here.give_way = give_way
        return here.native_id

    def run_beside(self, job: Job, method: str, crew: Crew | None = None) -> bool:
        """Do a request beside the turn, or let it wait for the threads that do such ones; return whether it is done so.

        Otherwise it is for whoever has the turn to do, or to refuse. This thread does it if it is one of `crew`, an
        engine's, and not the last one there; else a thread of the dispatcher does.
        """
        lane = job.lane
        in_turn = self.beside.get(lane.name)
        if in_turn is None or method in in_turn:
            return False
        with self._guard:
            if lane.beside >= self._most_beside:
                return self._line_up(job)
            if crew is not None and crew.held + 1 >= crew.most:
                crew = None
            if crew is None and not self._lend_thread(job):
                return False
            lane.beside += 1
            if crew is not None:
                crew.held += 1
                if crew.parked:
                    crew.parked.pop().lock.release()  # to receive what comes next
        if crew is not None:
            self._serve_beside(job, crew)
        return True

    def _serve_idle(self, job: Job | None) -> None:
        """Do jobs that nobody receives; the life of a thread."""
        while job is not None:
            self._serve_beside(job, self._own)
            spot = Spot()
            with self._guard:
                if self._own.closed:
                    return
                self._idle.append(spot)
            spot.lock.acquire()
            job = spot.job

    def _serve_beside(self, job: Job, crew: Crew) -> None:
        """Do a job, then those of its plugin that wait."""
        me = self._take_part(self._give_way_beside)
        following: Job | None = job
        while following is not None:
            self._running[me] = job = following
            if self._asleep:
                self._wake_watcher()
            try:
                job.run()
            except BaseException:
                _LOGGER.exception("a request was not answered")
            with self._guard:
                is_away = self._running.pop(me) is None
                following = self._end(job.lane, crew)
            if is_away:
                self.processor.join()

    def _rest_beside(self, long: bool) -> None:
        """Let another request of the plugin in while this thread waits, or computes elsewhere, for long."""
        me = this_thread.native_id
        with self._guard:
            job = self._running.get(me)
            if job is None or not long:
                return
            self._running[me] = None
            self._let_go(job)
            lane = job.lane
            if lane.resting < MOST_RESTING:
                this_thread.waits = True
                lane.resting += 1
                self._leave_place(lane)

    # With the guard.

    def _line_up(self, job: Job) -> bool:
        """Let a job wait for the threads beside the turn; return whether there is room for it."""
        if len(job.lane.waiting_beside) >= self._queue:
            job.since = -math.inf  # it has waited for long enough to be refused
            return False
        job.since = time.monotonic()
        job.lane.waiting_beside.append(job)
        return True

    def _end(self, lane: Lane, crew: Crew) -> Job | None:
        """Come to the end of a job; return the next one that this thread does."""
        waits, this_thread.waits = this_thread.waits, False
        if waits:
            lane.resting -= 1
        elif lane.waiting_beside and not crew.closed:
            return _first(lane)
        else:
            self._leave_place(lane)
        crew.held -= crew is not self._own
        return None

    def _leave_place(self, lane: Lane) -> None:
        """Leave a place beside the turn to a job that waits for it, if there is one and a thread for it."""
        if lane.waiting_beside and self._lend_thread(lane.waiting_beside[0]):
            _first(lane)
        else:
            lane.beside -= 1

    def _lend_thread(self, job: Job) -> bool:
        """Have a job done by a thread of the dispatcher; return whether there is one."""
        if self._idle:
            spot = self._idle.pop()
            spot.job = job
            spot.lock.release()
            return True
        try:
            self._start(partial(self._serve_idle, job))
        except RuntimeError:  # the system allows no more
            job.since = -math.inf
            return False
        return True

    def _let_go_slow(self, before: Mapping[int, Job | None]) -> dict[int, Job | None]:
        """Let threads beside the turn leave the processor that still do what they did before; return what is done."""
        running = dict(self._running)
        for thread, job in running.items():
            if job is not None and before.get(thread) is job:
                self._running[thread] = None
                self._let_go(job, thread)
        return running

    def _let_go(self, job: Job, thread: int = 0) -> None:
        """Let what takes long leave the processor: this thread, or that of a native id."""
        self.processor.leave(thread)
        self._long.append(job)

    def _start(self, serve: Callable[[], object]) -> None:
        """Start a thread of the dispatcher's own."""
        thread = threading.Thread(target=serve, name="plughost-requests", daemon=True)
        self._started = [*filter(threading.Thread.is_alive, self._started), thread]
        thread.start()

    def _wake_watcher(self) -> None:
        """Have it looked for what takes or waits too long."""
        raise NotImplementedError


def _first(lane: Lane) -> Job:
    """Take the first job that waits for a place beside the turn."""
    job = lane.waiting_beside.popleft()
    job.since = 0.0
    return job
