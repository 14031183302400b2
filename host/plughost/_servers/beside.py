"""Requests that are answered beside the turn: those of plugins with stores.

They wait for a disk or another process for much of their time. So up to eight threads answer those of one plugin, each
in the thread that received it, and what else the plugin is asked waits for these. On several processors threads that
compute together take twice as long, so this is done only where all threads share a processor.
"""

from __future__ import annotations

import logging
import time
from _thread import LockType, allocate_lock
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from plughost._api.host import Load
from plughost._servers import processor
from plughost._servers.work import Crew, Job, Lane
from plughost._waiting import this_thread

MOST_RESTING: Final = 16
"""Requests of one plugin that wait or compute elsewhere, beside those that it holds a thread with."""

_LOGGER: Final = logging.getLogger("plughost._servers")


class Beside:
    """What each plugin takes of the threads, and those that are beside the turn.

    Attributes:
        lanes: What each plugin takes of the threads, by name.
        beside: The plugins whose requests are answered so.
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
        self.beside: Collection[str] = ()
        self._share = share
        self._most_beside = most
        self._queue = queue
        self._one_processor = one_processor and processor.CAN_BE_SHARED
        self._guard: LockType = allocate_lock()  # around all counts
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

    def answer_beside(self, plugins: Collection[str]) -> None:
        """Answer the requests of some plugins so from now on, where all threads share a processor."""
        self.beside = plugins if self._one_processor else ()

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

    def run_beside(self, job: Job, crew: Crew) -> bool:
        """Do a job in this thread of an engine, whoever is active, or let it wait for the threads that do such ones.

        Return whether it was one to be done so: not where other plugins hold the engine's threads.
        """
        lane = job.lane
        with self._guard:
            begins = lane.beside < self._most_beside and crew.held + 1 < crew.most
            waits = not begins and len(lane.waiting) < self._queue
            if begins:
                lane.beside += 1
                crew.held += 1
                if crew.parked:
                    crew.parked.pop().lock.release()  # to receive what comes next
            elif not lane.beside:
                return False
            elif waits:
                job.since = time.monotonic()
                lane.waiting.append(job)
                if self._asleep:
                    self._wake_watcher()
            else:
                lane.refused += 1
        if begins:
            self._serve_beside(job, crew)
        elif not waits:
            job.refuse()
        return True

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

    def _rest_beside(self, long: bool, leaves: bool) -> None:
        """Let another request of the plugin in while this thread computes elsewhere."""
        job: Job | None = this_thread.job
        if job is None or not leaves or this_thread.is_away:
            return
        following = None
        with self._guard:
            lane = job.lane
            if lane.resting >= MOST_RESTING:
                return
            this_thread.is_away = True
            lane.beside -= 1
            lane.resting += 1
            if lane.waiting:
                following = lane.waiting.popleft()
                following.since = 0.0
        self.let_go()
        if following is not None:
            self.leave(following)

    def leave(self, job: Job) -> None:
        """Have a job done by a thread of the dispatcher's own."""
        raise NotImplementedError

    def _wake_watcher(self) -> None:
        """Have it looked for what waits too long."""
        raise NotImplementedError
