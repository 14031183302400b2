"""Requests that are answered beside the turn: those that wait for a disk or another process for much of their time.

That is what a plugin with a store is asked, but for reads of SQLite, which wait for nothing. Up to eight threads answer
such requests of one plugin, so that they overlap and writes share a commit. Further ones wait for these.
"""

from __future__ import annotations

import logging
import sys
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from plughost._api.host import Load
from plughost._servers import processor
from plughost._servers.work import Crew, Job, Lane, Spot
from plughost._waiting import this_thread

MOST_RESTING: Final = 16
"""Requests of one plugin that wait or compute elsewhere, beside those that it holds a thread with."""

_LOGGER: Final = logging.getLogger("plughost._servers")


class Beside:
    """What each plugin takes of the threads, and those that are beside the turn.

    Attributes:
        lanes: What each plugin takes of the threads, by name.
        beside: Each plugin with a store, and its methods that take turns with all others nevertheless.
    """

    def __init__(self, share: int, most: int, queue: int, one_processor: bool) -> None:
        """Begin with no plugin.

        Args:
            share: How many threads a plugin may hold with slow requests.
            most: How many threads answer a plugin's requests beside the turn.
            queue: How many requests of a plugin may wait.
            one_processor: Whether all threads share one processor.
        """
        self.lanes: dict[str, Lane] = {}
        self.beside: Mapping[str, Collection[str]] = {}
        self._share = share
        self._most_beside = most
        self._queue = queue
        self._one_processor = one_processor
        self._guard: LockType = allocate_lock()  # around all counts
        self._own = Crew(sys.maxsize)
        self._idle: list[Spot] = []
        self._asleep = True
        self._give_way_beside = self._rest_beside

    def lane(self, name: str) -> Lane:
        """Return what a plugin takes of the threads."""
        return self.lanes.get(name) or self.lanes.setdefault(name, Lane(name, self._share))

    def loads(self) -> Mapping[str, Load]:
        """Return what each plugin takes of the threads at the moment, by name."""
        return {
            name: Load(lane.held + lane.beside, len(lane.waiting), lane.refused)
            for name, lane in tuple(self.lanes.items())
        }

    def is_beside(self, plugin: str, method: str) -> bool:
        """Return whether a request is answered so."""
        in_turn = self.beside.get(plugin)
        return in_turn is not None and method not in in_turn

    def enlist(self) -> None:
        """Let this thread share the processor of those that answer requests."""
        if self._one_processor:
            processor.share()

    def let_go(self, thread: int = 0) -> None:
        """Let a thread run on any processor, this one by default."""
        if self._one_processor:
            processor.leave(thread)

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Let this thread run on any processor during a block, and so what it starts."""
        self.let_go()
        try:
            yield
        finally:
            self.enlist()

    def run_beside(self, job: Job, crew: Crew | None = None) -> None:
        """Do a job beside the turn, or let it wait for the threads that do such ones.

        Args:
            job: A request that `is_beside`.
            crew: The engine whose thread this is and may do it. A thread of the dispatcher does it by default.
        """
        lane = job.lane
        with self._guard:
            refused = lane.beside >= self._most_beside and len(lane.waiting) >= self._queue
            there = None if refused else self._admit(job, crew)
            lane.refused += refused
        if refused:
            job.refuse()
        elif there is self._own:
            self._lend_thread(job)
        elif there is not None:
            self._serve_beside(job, there)

    def _admit(self, job: Job, crew: Crew | None) -> Crew | None:
        """Return whose thread does a job; None where it waits."""
        lane = job.lane
        if lane.beside < self._most_beside:
            there = self._own if crew is None or crew.held + 1 >= crew.most else crew
            lane.beside += 1
            there.held += 1
            if there is crew and crew.parked:
                crew.parked.pop().lock.release()  # to receive what comes next
            return there
        job.since = time.monotonic()
        lane.waiting.append(job)
        if self._asleep:
            self._wake_watcher()
        return None

    def _lend_thread(self, job: Job) -> None:
        """Have a job done that was admitted, by a thread of the dispatcher."""
        with self._guard:
            spot = self._idle.pop() if self._idle else None
        if spot is None:
            self._start(partial(self._serve_idle, job))
        else:
            spot.job = job
            spot.lock.release()

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
        if this_thread.give_way is None:
            self.enlist()
        this_thread.give_way = self._give_way_beside
        lane = job.lane
        while True:
            this_thread.job = job
            try:
                job.run()
            except BaseException:
                _LOGGER.exception("a request was not answered")
            if this_thread.is_away:
                self.enlist()
            with self._guard:
                if not this_thread.is_away and lane.waiting:
                    job = lane.waiting.popleft()
                    job.since = 0.0
                    continue
                if this_thread.is_away:
                    lane.resting -= 1
                else:
                    lane.beside -= 1
                crew.held -= 1
                this_thread.job, this_thread.is_away = None, False
                return

    def _rest_beside(self, long: bool) -> None:
        """Let another request of the plugin in while this thread waits, or computes elsewhere, for long."""
        job: Job | None = this_thread.job
        if job is None or not long or this_thread.is_away:
            return
        following = None
        with self._guard:
            lane = job.lane
            if lane.resting >= MOST_RESTING:
                return
            this_thread.is_away = True
            lane.resting += 1
            if lane.waiting:  # it takes the place of this one
                following = lane.waiting.popleft()
                following.since = 0.0
                self._own.held += 1
            else:
                lane.beside -= 1
        self.let_go()
        if following is not None:
            self._lend_thread(following)

    def _start(self, serve: Callable[[], object]) -> None:
        """Start a thread of the dispatcher's own."""
        raise NotImplementedError

    def _wake_watcher(self) -> None:
        """Have it looked for what waits too long."""
        raise NotImplementedError
