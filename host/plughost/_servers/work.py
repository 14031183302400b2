"""What the threads run, what each plugin may take of them, and the backlog that waits for the turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Final

from plughost._waiting import this_thread

MAX_YIELDED: Final = 16
"""Jobs of one plugin that wait or compute outside the interpreter without counting against its share."""


@dataclass(slots=True, eq=False)
class Share:
    """What one plugin takes of the threads. `Threads.lock` guards it, except `ready`, which is the backlog's."""

    plugin: str  # its name; empty for requests to no plugin
    limit: int  # threads that it may hold
    held: int = 0  # threads that it holds, each with a slow request
    queue: deque[Job] = field(default_factory=deque)  # jobs that wait for a thread of the share
    refused: int = 0  # requests refused because the queue was full or they waited too long
    pool_queue: deque[Job] = field(default_factory=deque)  # jobs that wait for a thread of the blocking pool
    yielded: int = 0  # jobs that yielded their turn, or their place in the pool
    pool_threads: int = 0  # threads of the blocking pool that run its jobs
    ready: deque[Job] = field(default_factory=deque)  # jobs that wait only for the turn

    def begin_yield(self) -> bool:
        """Count this thread's job as one that yielded. Return whether few enough of the plugin do so."""
        if self.yielded >= MAX_YIELDED:
            return False
        this_thread.has_yielded = True
        self.yielded += 1
        return True

    def end_yield(self) -> bool:
        """Count this thread's job, which has ended, no more. Return whether it had yielded."""
        if not this_thread.has_yielded:
            return False
        this_thread.has_yielded = False
        self.yielded -= 1
        return True


class Job:
    """What a thread runs: a request, the rest of a response, or a plugin's function."""

    share: Share  # of the plugin that it is for
    has_begun = False  # whether a part has run already: the rest is never refused
    queued_at: float = 0.0  # when it was put in a queue of its share, by `time.monotonic()`; 0 if it is in none

    def run(self) -> None:
        """Run it, or the rest of it."""

    def refuse(self) -> None:
        """Respond that the plugin has too much to do."""

    def on_slow(self) -> None:
        """Learn, in the watcher's thread, that it takes long. It may have ended meanwhile."""


class FunctionJob(Job):
    """A function that counts against its plugin's share like a request, but is never refused."""

    has_begun = True

    def __init__(self, share: Share, function: Callable[[], None]) -> None:
        self.share = share
        self._function = function

    def run(self) -> None:
        copy_context().run(self._function)  # what it sets there, such as log fields, ends with it


class Backlog:
    """The jobs that wait for the turn: plugins are served round-robin, one job each, however many they have.

    Any thread adds to it, without a lock. Only the active one takes from it.
    """

    def __init__(self) -> None:
        self._new: deque[Job] = deque()
        self._shares: deque[Share] = deque()  # those with `ready` jobs, in the order of their turns
        self.add: Callable[[Job], None] = self._new.append

    def __bool__(self) -> bool:
        return bool(self._new or self._shares)

    def pop(self) -> Job | None:
        """Remove and return the next job. None if there is none."""
        new, shares = self._new, self._shares
        if not shares and len(new) == 1:
            return new.popleft()
        while new:
            job = new.popleft()
            ready = job.share.ready
            if not ready:
                shares.append(job.share)
            if job.queued_at:  # it came before those that are ready
                ready.appendleft(job)
            else:
                ready.append(job)
        if not shares:
            return None
        share = shares.popleft()
        job = share.ready.popleft()
        if share.ready:
            shares.append(share)
        return job
