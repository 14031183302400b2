"""What plugins take of the threads that answer requests, and which of their jobs may begin."""

from __future__ import annotations

import time
from _thread import allocate_lock
from typing import TYPE_CHECKING, Final

from plughost._api.host import Load
from plughost._servers.work import Backlog, Job, Lane, Share, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MAX_YIELDED: Final = 16
"""Jobs of one plugin that wait or compute outside the interpreter without counting against its share."""

_MIN_SHARE: Final = 2
_MAX_BLOCKING: Final = 10  # jobs of one plugin: one for each connection of its store


class Shares:
    """The shares of all plugins; see `Dispatcher`.

    Attributes:
        backlog: The jobs that wait for the turn. Who adds to it calls `run_or_queue` next.
        blocking_plugins: The plugins whose requests run without the turn, each with the methods that take it.
    """

    def __init__(self, threads: int, share: int | None, queue_limit: int, queue_timeout: float) -> None:
        self.backlog: Backlog = Backlog()
        self.blocking_plugins: Mapping[str, Collection[str]] = {}
        self._shares: dict[str, Share] = {}
        self._share_limit = share or max(_MIN_SHARE, threads // 4)
        self._blocking_limit = share or _MAX_BLOCKING
        self._max_held = threads
        self._held = 0  # threads with slow jobs, of all plugins
        self._queue_limit = queue_limit
        self._queue_timeout = queue_timeout
        self._lock = allocate_lock()  # guards all counts

    def share_of(self, name: str) -> Share:
        """Return the share of a plugin."""
        return self._shares.get(name) or self._shares.setdefault(
            name, Share(name, Lane(self._share_limit), Lane(self._blocking_limit), Lane(MAX_YIELDED))
        )

    def loads(self) -> Mapping[str, Load]:
        """Return what each plugin takes of the threads now, by name."""
        return {
            name: Load(
                share.slow.held + share.blocking.held, len(share.slow.queue) + len(share.blocking.queue), share.refused
            )
            for name, share in tuple(self._shares.items())
        }

    def is_contended(self, share: Share) -> bool:
        """Return whether jobs wait for the turn, or for the threads of this plugin."""
        return bool(self.backlog or share.slow.queue or share.blocking.queue)

    def assign(self, job: Job, plugin: str, method: str) -> None:
        """Set what a request counts in: the share of its plugin, and whether it needs the turn."""
        job.share = self.share_of(plugin)
        turn_methods = self.blocking_plugins.get(plugin)
        job.is_blocking = turn_methods is not None and method not in turn_methods

    # The caller holds the lock.

    def _admit(self, job: Job) -> Callable[[], None] | None:
        """Return a job's function to call, `run` or `refuse`; None if the job was queued in its share."""
        share = job.share
        lane = share.blocking if job.is_blocking else share.slow
        if job.queued_at and not job.has_begun and time.monotonic() - job.queued_at > self._queue_timeout:
            share.refused += 1
            return job.refuse
        if self._has_room(share, lane):
            job.queued_at = 0.0
            return job.run
        if job.queued_at:  # it came before those that are queued
            lane.queue.appendleft(job)
            self._admit_queued(share)  # another job has taken its thread
            return None
        if not job.has_begun and sum(not each.has_begun for each in lane.queue) >= self._queue_limit:
            share.refused += 1
            return job.refuse
        lane.queue.append(job)
        job.queued_at = time.monotonic()
        return None

    def _has_room(self, share: Share, lane: Lane) -> bool:
        """Return whether a plugin may begin one more job that counts in this lane."""
        return lane.held == 0 or (lane.held < lane.limit and (lane is share.blocking or self._held < self._max_held))

    def _admit_queued(self, share: Share) -> None:
        """Move a queued job whose plugin may begin one to the backlog, preferably of this plugin."""
        for each in (share, *self._shares.values()):
            for lane in (each.blocking, each.slow):
                if lane.queue and self._has_room(each, lane):
                    self.backlog.add(lane.queue.popleft())
                    return

    def _count(self, worker: Worker, lane: Lane | None) -> None:
        """Change the lane that a thread's job counts in; None if it has the turn or has ended."""
        before, worker.lane = worker.lane, lane
        if before is not None:
            before.held -= 1
        if lane is not None:
            lane.held += 1
        slow = worker.job.share.slow
        self._held += (lane is slow) - (before is slow)
        worker.group.held += (lane is not None) - (before is not None)

    def _expire_queued(self) -> None:
        """Move jobs that waited for too long to the backlog, to be refused."""
        expired_before = time.monotonic() - self._queue_timeout
        for share in tuple(self._shares.values()):  # another thread may add one
            for jobs in (share.slow.queue, share.blocking.queue):
                for job in [each for each in jobs if each.queued_at < expired_before and not each.has_begun]:
                    jobs.remove(job)
                    self.backlog.add(job)
