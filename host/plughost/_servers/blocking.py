"""The blocking pool: threads for requests that wait for a disk or another process most of their time.

Such are the requests of plugins with stores, except reads of SQLite, which wait for nothing. Up to ten threads run
those of one plugin outside the turn, so that their waits overlap and writes share a commit. Further ones are queued.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from plughost._waiting import this_thread

if TYPE_CHECKING:
    from plughost._servers.slow_jobs import SlowJobWatcher
    from plughost._servers.threads import ThreadGroup, Threads
    from plughost._servers.work import Job, Share

_LOGGER: Final = logging.getLogger("plughost._servers")


class BlockingPool:
    """Runs jobs outside the turn, up to `max_threads` of each plugin.

    Attributes:
        plugins: The plugins whose requests run in the pool, each with the methods that take turns instead.
        running: What runs, by native thread id.
    """

    def __init__(self, threads: Threads, watcher: SlowJobWatcher, max_threads: int, queue_limit: int) -> None:
        self.plugins: Mapping[str, Collection[str]] = {}
        self.running: dict[int, Job] = {}
        self._threads = threads
        self._lock = threads.lock
        self._watcher = watcher
        self._max_threads = max_threads
        self._queue_limit = queue_limit
        self._slow: set[int] = set()  # threads that have left the shared processor with a slow job
        self._last_seen: dict[int, Job] = {}  # what ran at the last `mark_slow_jobs`
        self._bound_yield_place = self._yield_place  # one object, since it is compared by identity

    def run(self, job: Job, method: str, group: ThreadGroup | None = None) -> bool:
        """Run a job, or queue it. Return False if it needs the turn, perhaps to be refused.

        This thread runs it if it belongs to `group`, an engine's, and another thread of that is left to receive.
        Otherwise a thread that belongs to no engine does.
        """
        share = job.share
        turn_methods = self.plugins.get(share.plugin)
        if turn_methods is None or method in turn_methods:
            return False
        with self._lock:
            if share.pool_threads >= self._max_threads:
                return self._enqueue(job)
            if group is None or group.held + 1 >= group.max_held:
                is_started = self._hand_to_thread(job)
                share.pool_threads += is_started
                return is_started
            share.pool_threads += 1
            group.held += 1
            if group.parked:
                group.parked.pop().wake()  # to receive the next request
        self._run_jobs(job, group)
        return True

    def _run_jobs(self, job: Job, group: ThreadGroup) -> None:
        """Run a job, then the queued ones of its plugin."""
        me = self._threads.register(self._bound_yield_place)
        following: Job | None = job
        while following is not None:
            self.running[me] = job = following
            if self._watcher.is_asleep:
                self._watcher.wake()
            try:
                job.run()
            except BaseException:
                _LOGGER.exception("a request was not answered")
            with self._lock:
                del self.running[me]
                is_slow = me in self._slow
                self._slow.discard(me)
                following = self._finish(job.share, group)
            if is_slow:
                self._threads.processor.bind()

    def _yield_place(self, long: bool) -> None:
        """Free this job's place for its plugin's next one if it is about to wait or compute for long."""
        me = this_thread.native_id
        with self._lock:
            job = self.running.get(me)
            if job is None or not long or this_thread.has_yielded:
                return
            if me not in self._slow:
                self._mark_slow(me, job)
            if job.share.begin_yield():
                self._release_place(job.share)

    def mark_slow_jobs(self) -> None:
        """Mark the jobs as slow that already ran at the last call."""
        with self._lock:
            before, self._last_seen = self._last_seen, dict(self.running)
            for thread, job in self._last_seen.items():
                if thread not in self._slow and before.get(thread) is job:
                    self._mark_slow(thread, job)

    # The caller holds the lock.

    def _enqueue(self, job: Job) -> bool:
        """Queue a job. Return whether the queue has room."""
        if len(job.share.pool_queue) >= self._queue_limit:
            job.queued_at = -math.inf  # so that it is refused
            return False
        job.queued_at = time.monotonic()
        job.share.pool_queue.append(job)
        return True

    def _finish(self, share: Share, group: ThreadGroup) -> Job | None:
        """End a job. Return the next one for this thread."""
        if not share.end_yield():
            if share.pool_queue and not group.is_closed:
                return _dequeue(share)
            self._release_place(share)
        group.held -= group is not self._threads.own
        return None

    def _release_place(self, share: Share) -> None:
        """Give a place to the next queued job, if there is one and a thread for it."""
        if share.pool_queue and self._hand_to_thread(share.pool_queue[0]):
            _dequeue(share)
        else:
            share.pool_threads -= 1

    def _hand_to_thread(self, job: Job) -> bool:
        """Hand a job to a thread that belongs to no engine. Return False if the system allows no further one."""
        if self._threads.run(partial(self._run_jobs, job), self._threads.own):
            return True
        job.queued_at = -math.inf  # so that it is refused
        return False

    def _mark_slow(self, thread: int, job: Job) -> None:
        self._slow.add(thread)
        self._watcher.mark_slow(thread, job)


def _dequeue(share: Share) -> Job:
    job = share.pool_queue.popleft()
    job.queued_at = 0.0
    return job
