"""What threads do for plugins: requests, and what plugins do beside these."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True, eq=False)
class Lane:
    """What one plugin takes of the threads."""

    name: str  # of the plugin; empty for requests that are for none
    share: int  # how many threads it may hold
    held: int = 0  # how many it holds, each with a slow request
    waiting: deque[Job] = field(default_factory=deque)  # the requests that wait for one of these to end
    refused: int = 0  # how many requests were, since too many waited or since they waited too long
    waiting_beside: deque[Job] = field(default_factory=deque)  # those that wait for a thread beside the turn
    resting: int = 0  # how many of its requests gave their turn away
    beside: int = 0  # how many threads answer its requests beside the active one
    ready: deque[Job] = field(default_factory=deque)  # those that wait for nothing but the turn


class Job:
    """A request that a thread is to answer, or the rest of one."""

    lane: Lane  # what it counts against
    begun = False  # whether a part of it is done already: the rest of it is never refused
    since: float = 0.0  # when it began to wait in its lane, of `time.monotonic()`; 0 where it doesn't
    crew: Crew | None = None  # the engine that received it, once it has to wait for the turn

    def run(self) -> None:
        """Go on with it."""

    def refuse(self) -> None:
        """Answer that the plugin has too much to do."""

    def takes_long(self) -> None:
        """Be told, in the watcher's thread, that it takes long; it may have ended meanwhile."""


class Work(Job):
    """A function that counts against its plugin's share of the threads, as a request that is never refused."""

    begun = True

    def __init__(self, lane: Lane, do: Callable[[], None]) -> None:
        self.lane = lane
        self._do = do

    def run(self) -> None:
        """Do it."""
        self._do()


class Backlog:
    """What waits for the turn: plugins take it one after the other, each for one request, however many it has.

    Any thread adds to it, without a lock. Only the active one takes from it.
    """

    def __init__(self) -> None:
        self._new: deque[Job] = deque()
        self._lanes: deque[Lane] = deque()  # those with something in `ready`, whose turn is next first
        self.add: Callable[[Job], None] = self._new.append

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return bool(self._new or self._lanes)

    def first(self) -> Job | None:
        """Return what is next as far as that can be told at the moment, and leave it there."""
        try:
            return self._lanes[0].ready[0] if self._lanes else self._new[0]
        except IndexError:
            return None

    def take(self) -> Job | None:
        """Return what is done next; None where nothing is left."""
        new, lanes = self._new, self._lanes
        if not lanes and len(new) == 1:
            return new.popleft()
        while new:
            job = new.popleft()
            ready = job.lane.ready
            if not ready:
                lanes.append(job.lane)
            if job.since:  # it was there before those that are ready
                ready.appendleft(job)
            else:
                ready.append(job)
        if not lanes:
            return None
        lane = lanes.popleft()
        job = lane.ready.popleft()
        if lane.ready:
            lanes.append(lane)
        return job


@dataclass(slots=True, eq=False)
class Crew:
    """The threads of one engine, or those of the dispatcher itself.

    An engine's threads receive requests, too: they park only while one of them is active or stands ready to receive the
    next request; and the last one that isn't held answers nothing itself.
    """

    most: int  # how many of them may be held by slow requests
    held: int = 0
    parked: list[Spot] = field(default_factory=list)
    closed: bool = False


class Spot:
    """Where a thread is parked, until it is handed the turn or a job, or sent away."""

    def __init__(self) -> None:
        self.lock: LockType = allocate_lock()
        self.lock.acquire()
        self.has_turn = False
        self.job: Job | None = None
