"""The blocking pool: threads for requests that wait for a disk or another process most of their time.

Such are the requests of plugins with stores, except reads of SQLite, which wait for nothing. Up to ten threads run
those of one plugin outside the turn, so that their waits overlap and writes share a commit. Further ones are queued.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from _thread import LockType, allocate_lock
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from plughost._api.host import Load
from plughost._servers.processor import Processor
from plughost._servers.work import Job, Share, ThreadGroup
from plughost._waiting import this_thread

MAX_YIELDED: Final = 16
"""Jobs of one plugin that wait or compute outside the interpreter without counting against its share."""

_LOGGER: Final = logging.getLogger("plughost._servers")


class BlockingPool(ABC):
    """The shares of all plugins, and the threads that run jobs outside the turn, up to `max_threads` for each plugin.

    Attributes:
        shares: What each plugin takes of the threads, by name.
        processor: The processor that all threads share, if they do.
        blocking_plugins: The plugins whose requests run in the pool, each with the methods that take turns instead.
    """

    def __init__(self, share_limit: int, max_threads: int, queue_limit: int, one_processor: bool) -> None:
        self.shares: dict[str, Share] = {}
        self.blocking_plugins: Mapping[str, Collection[str]] = {}
        self._share_limit = share_limit
        self._max_pool_threads = max_threads
        self._queue_limit = queue_limit
        self.processor: Processor = Processor(shared=one_processor)
        self._lock: LockType = allocate_lock()  # guards all counts
        self._own_group = ThreadGroup(sys.maxsize)
        self._own_threads: list[threading.Thread] = []
        self._running: dict[int, Job] = {}  # what the pool runs, by native thread id
        self._unbound: set[int] = set()  # those of its threads that have left the shared processor with a slow job
        self._slow_jobs: deque[Job] = deque()  # whose `on_slow` the watcher is to call
        self._is_watcher_asleep = True
        self._bound_yield_place = self._yield_place  # one object, since it is compared by identity

    def share_of(self, name: str) -> Share:
        return self.shares.get(name) or self.shares.setdefault(name, Share(name, self._share_limit))

    def loads(self) -> Mapping[str, Load]:
        """Return what each plugin takes of the threads now, by name."""
        return {
            name: Load(share.held + share.pool_threads, len(share.queue) + len(share.pool_queue), share.refused)
            for name, share in tuple(self.shares.items())
        }

    def _register_thread(self, yield_turn: Callable[[bool], None]) -> int:
        """Prepare this thread to run jobs, and set how it yields; return its native id."""
        this = this_thread
        if this.yield_turn is not yield_turn:
            if this.yield_turn is None:
                self.processor.bind()
            this.yield_turn = yield_turn
        return this.native_id

    def run_in_pool(self, job: Job, method: str, group: ThreadGroup | None = None) -> bool:
        """Run a job in the blocking pool, or queue it there; return False if it needs the turn, perhaps to be refused.

        This thread runs it if it belongs to `group`, an engine's, and another thread of that is left to receive.
        Otherwise a thread of the dispatcher does.
        """
        share = job.share
        turn_methods = self.blocking_plugins.get(share.plugin)
        if turn_methods is None or method in turn_methods:
            return False
        with self._lock:
            if share.pool_threads >= self._max_pool_threads:
                return self._enqueue(job)
            if group is not None and group.held + 1 >= group.max_held:
                group = None
            if group is None and not self._hand_to_thread(job):
                return False
            share.pool_threads += 1
            if group is not None:
                group.held += 1
                if group.parked:
                    group.parked.pop().lock.release()  # to receive the next request
        if group is not None:
            self._run_pool_jobs(job, group)
        return True

    def _run_pool_jobs(self, job: Job, group: ThreadGroup) -> None:
        """Run a job, then the queued ones of its plugin."""
        me = self._register_thread(self._bound_yield_place)
        following: Job | None = job
        while following is not None:
            self._running[me] = job = following
            if self._is_watcher_asleep:
                self._wake_watcher()
            try:
                job.run()
            except BaseException:
                _LOGGER.exception("a request was not answered")
            with self._lock:
                del self._running[me]
                is_unbound = me in self._unbound
                self._unbound.discard(me)
                following = self._finish_in_pool(job.share, group)
            if is_unbound:
                self.processor.bind()

    def _yield_place(self, long: bool) -> None:
        """Free this job's place in the pool for its plugin's next one if it is about to wait or compute for long."""
        me = this_thread.native_id
        with self._lock:
            job = self._running.get(me)
            if job is None or not long or this_thread.has_yielded:
                return
            if me not in self._unbound:
                self._unbound.add(me)
                self._mark_slow(job)
            share = job.share
            if share.yielded < MAX_YIELDED:
                this_thread.has_yielded = True
                share.yielded += 1
                self._release_place(share)

    # The caller holds the lock.

    def _enqueue(self, job: Job) -> bool:
        """Queue a job for the pool; return whether the queue has room."""
        if len(job.share.pool_queue) >= self._queue_limit:
            job.queued_at = -math.inf  # so that it is refused
            return False
        job.queued_at = time.monotonic()
        job.share.pool_queue.append(job)
        return True

    def _finish_in_pool(self, share: Share, group: ThreadGroup) -> Job | None:
        """End a job; return the next one for this thread."""
        has_yielded, this_thread.has_yielded = this_thread.has_yielded, False
        if has_yielded:
            share.yielded -= 1
        elif share.pool_queue and not group.is_closed:
            return _dequeue(share)
        else:
            self._release_place(share)
        group.held -= group is not self._own_group
        return None

    def _release_place(self, share: Share) -> None:
        """Give a place in the pool to the next queued job, if there is one and a thread for it."""
        if share.pool_queue and self._hand_to_thread(share.pool_queue[0]):
            _dequeue(share)
        else:
            share.pool_threads -= 1

    def _hand_to_thread(self, job: Job) -> bool:
        """Hand a job to a parked thread of the dispatcher or a new one; return whether there is one."""
        if self._own_group.parked:
            parked_thread = self._own_group.parked.pop()
            parked_thread.job = job
            parked_thread.lock.release()
            return True
        try:
            self._start_thread(job)
        except RuntimeError:  # the system allows no further thread
            job.queued_at = -math.inf
            return False
        return True

    def _mark_slow_jobs(self, before: Mapping[int, Job]) -> dict[int, Job]:
        """Mark pool jobs as slow that already ran at the last call; return what runs now, for the next call."""
        running = dict(self._running)
        for thread, job in running.items():
            if thread not in self._unbound and before.get(thread) is job:
                self._unbound.add(thread)
                self._mark_slow(job, thread)
        return running

    def _mark_slow(self, job: Job, thread: int = 0) -> None:
        """Let a slow job leave the shared processor, this thread or that of a native id; record it for `on_slow`."""
        self.processor.unbind(thread)
        self._slow_jobs.append(job)

    def _start_thread(self, job: Job | None) -> None:
        """Start a thread of the dispatcher, with a job of the pool or with the turn."""
        thread = threading.Thread(target=self._run_thread, args=(job,), name="plughost-requests", daemon=True)
        self._own_threads = [*filter(threading.Thread.is_alive, self._own_threads), thread]
        thread.start()

    @abstractmethod
    def _run_thread(self, job: Job | None) -> None:
        """Begin with a job of the pool, or with the turn, and go on with what comes."""

    @abstractmethod
    def _wake_watcher(self) -> None:
        """Have the watcher check what runs."""


def _dequeue(share: Share) -> Job:
    job = share.pool_queue.popleft()
    job.queued_at = 0.0
    return job
