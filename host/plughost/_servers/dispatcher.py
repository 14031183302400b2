"""The threads that answer requests on all listeners of a host: leader and followers.

One thread is active: it has the turn, and runs one job after the other. The others are parked. When a request has run
for some milliseconds, a parked thread becomes the active one, and the slow one parks when it is done. Plugins are
served round-robin, and none holds more than its share of threads with slow requests: further requests wait in the
plugin's bounded queue, and are refused when it is full. Requests of plugins with stores run in the blocking pool
instead (`BlockingPool`).
"""

from __future__ import annotations

import logging
import time
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from typing import Final

from plughost._api.host import Load
from plughost._servers.blocking import BlockingPool
from plughost._servers.processor import Processor
from plughost._servers.slow_jobs import SlowJobWatcher
from plughost._servers.threads import ThreadGroup, Threads
from plughost._servers.work import Backlog, Job, Share
from plughost._waiting import this_thread

_LOOKS_PER_CHECK: Final = 10  # looks of the watcher at the turn, per check of the queues and the blocking pool
_MIN_SHARE: Final = 2
_TURN_SECONDS: Final = 0.002  # that a thread of an engine runs jobs before it receives again, though more wait
_MAX_POOL_THREADS: Final = 10  # of one plugin: one for each connection of its store
_NO_JOB: Final = None, None, 0
_LOGGER: Final = logging.getLogger("plughost._servers")


class Dispatcher:
    """Hands jobs to threads, one after the other as long as none is slow.

    Attributes:
        threads: The threads.
        pool: The blocking pool, which shares them.
        shares: What each plugin takes of the threads, by name.
        enqueue: Adds a job to the backlog. `run_or_queue` must follow.

    Args:
        threads: How many slow requests may run at once. A plugin that holds no thread may always begin one more.
        share: How many of these threads one plugin may hold. By default a quarter, and at least two.
        queue_limit: How many requests of one plugin may wait.
        queue_timeout: Seconds after which a request that waits is refused.
        one_processor: Whether its threads share one processor. See `Processor`.
    """

    def __init__(
        self,
        threads: int,
        *,
        share: int | None = None,
        queue_limit: int = 64,
        queue_timeout: float = 10.0,
        one_processor: bool = False,
    ) -> None:
        self.shares: dict[str, Share] = {}
        self.processor: Processor = Processor(shared=one_processor)
        self.threads: Threads = Threads(self.processor)
        self._watcher = SlowJobWatcher(self._look, self._is_busy, self.processor)
        self.pool: BlockingPool = BlockingPool(self.threads, self._watcher, share or _MAX_POOL_THREADS, queue_limit)
        self._share_limit = share or max(_MIN_SHARE, threads // 4)
        self._queue_limit = queue_limit
        self._max_held = threads
        self._queue_timeout = queue_timeout
        self._backlog = Backlog()
        self.enqueue: Callable[[Job], None] = self._backlog.add
        self._turn = allocate_lock()  # held for the active thread, which alone takes jobs from the backlog
        self._lock = self.threads.lock
        self._own_group = self.threads.own
        self._active: ThreadGroup | None = None  # of the active thread; None while the turn passes to another
        self._run_count = 0  # jobs begun with the turn so far
        # The job that has the turn, its group and native thread id, by run count. Who removes it may pass the turn on.
        self._current: dict[int, tuple[Job, ThreadGroup, int]] = {}
        self._slow: dict[int, Share] = {}  # the share that counts each slow job, by native thread id
        self._bound_yield_turn = self.yield_turn  # one object, since it is compared by identity
        self._held = 0
        self._last_seen = 0  # the run count at the watcher's last look
        self._looks = 0

    def close(self, timeout: float) -> bool:
        """End the threads that belong to no engine. Return whether all ended within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        has_ended = self._watcher.close(deadline)
        return self.threads.close(deadline) and has_ended

    def share_of(self, name: str) -> Share:
        return self.shares.get(name) or self.shares.setdefault(name, Share(name, self._share_limit))

    def loads(self) -> Mapping[str, Load]:
        """Return what each plugin takes of the threads now, by name."""
        return {
            name: Load(share.held + share.pool_threads, len(share.queue) + len(share.pool_queue), share.refused)
            for name, share in tuple(self.shares.items())
        }

    def is_contended(self, share: Share) -> bool:
        """Return whether jobs wait for the turn, or for the threads of this plugin."""
        return bool(self._backlog or share.queue or share.pool_queue)

    def submit(self, job: Job) -> None:
        """Have a job run by a thread of the dispatcher."""
        self._backlog.add(job)
        if self._turn.acquire(False):
            with self._lock:
                self._promote(self._own_group)

    def run_or_queue(self, job: Job, group: ThreadGroup) -> None:
        """Run a job in this thread of an engine if no thread is active, else queue it for the active one.

        Return when this thread is to receive the next request.
        """
        job_here: Job | None = job
        if not self._turn.acquire(False):
            self._backlog.add(job)
            job_here = None
            if not self._turn.acquire(False):
                with self._lock:
                    if self._active is not group:
                        return
                    parked_thread = group.park()
                parked_thread.wait(group)
                return
        if group.held < group.max_held:
            self._active = group
            self._run_jobs(group, job_here)
            return
        if job_here is not None:
            self._backlog.add(job_here)
        with self._lock:
            self._promote(self._own_group)

    def park_if_spare(self, group: ThreadGroup) -> bool:
        """Park this thread of an engine if another one of its threads receives. Return whether it did."""
        with self._lock:
            if group.is_closed or len(group.parked) + group.held + (self._active is group) >= group.max_held:
                return False
            parked_thread = group.park()
        parked_thread.wait(group)
        return True

    # In the thread of a job.

    def yield_turn(self, long: bool) -> None:
        """Pass the turn on if this job is to wait for long or others wait now. A slow one leaves its share."""
        if long or self._backlog:
            with self._lock:  # the watcher may just have found that this job is slow
                if this_thread.native_id not in self._slow:
                    self._pass_turn_on(long)
                elif long:
                    self._leave_share()

    def _run_jobs(self, group: ThreadGroup, job: Job | None = None) -> None:
        """Run the given job, then those of the backlog, until another thread has the turn or none is left."""
        me, current = self.threads.register(self._bound_yield_turn), self._current
        until = time.monotonic() + _TURN_SECONDS
        while job is not None or (job := self._next_job(group)) is not None:
            waited = job.queued_at
            do = self._admit(job) if self._held or waited else job.run
            if do is None:
                job = None
                continue
            share = job.share
            self._run_count = number = self._run_count + 1
            current[number] = job, group, me
            if self._watcher.is_asleep:
                self._watcher.wake()
            try:
                do()
            except BaseException:
                _LOGGER.exception("a request was not answered")
            job = do = None
            if current.pop(number, None) is None:  # another thread has the turn now
                with self._lock:
                    self.processor.bind()  # a slow job leaves the processor
                    if self._finish_slow(share, group):
                        continue
                return
            if waited:  # it got its thread from a slow job that ended; pass it on
                with self._lock:
                    self._admit_queued(share)
            if group is not self._own_group and time.monotonic() > until and self._backlog:
                with self._lock:
                    self._promote(group)
                return

    def _next_job(self, group: ThreadGroup) -> Job | None:
        """Return the next job. None if there is none, and then the turn is released."""
        while (job := self._backlog.pop()) is None:
            self._active = None
            self._turn.release()
            if not self._backlog or not self._turn.acquire(False):
                return None
            self._active = group
        return job

    def _admit(self, job: Job) -> Callable[[], None] | None:
        """Return a job's function to call, `run` or `refuse`. None if the job was queued in its share."""
        share = job.share
        with self._lock:
            if job.queued_at and not job.has_begun and time.monotonic() - job.queued_at > self._queue_timeout:
                share.refused += 1
                return job.refuse
            if self._has_room(share):
                job.queued_at = 0.0
                return job.run
            if job.queued_at:  # it came before those that are queued
                share.queue.appendleft(job)
                self._admit_queued(share)  # another job has taken its thread
                return None
            if not job.has_begun and sum(not each.has_begun for each in share.queue) >= self._queue_limit:
                share.refused += 1
                return job.refuse
            share.queue.append(job)
            job.queued_at = time.monotonic()
            return None

    # The caller holds the lock.

    def _pass_turn_on(self, long: bool) -> None:
        """Let the job of this thread go on without the turn, if it has it and few of its plugin do so."""
        number = self._run_count
        job, group, thread = self._current.get(number, _NO_JOB)
        if job and group and thread == this_thread.native_id and job.share.begin_yield():
            del self._current[number]
            if long:
                self._watcher.mark_slow(thread, job)
            self._admit_queued(job.share)  # if it came from the queue, it doesn't hold the thread that it got
            self._release_turn(group)

    def _leave_share(self) -> None:
        """Let a slow job count no more against its plugin's share."""
        share = self._slow[this_thread.native_id]
        if share.begin_yield():
            del self._slow[this_thread.native_id]
            share.held -= 1
            self._held -= 1
            self._admit_queued(share)
            if self._backlog and self._turn.acquire(False):
                self._promote(self._own_group)

    def _has_room(self, share: Share) -> bool:
        return share.held == 0 or (share.held < share.limit and self._held < self._max_held)

    def _admit_queued(self, share: Share) -> None:
        """Move a queued job whose plugin may begin one to the backlog, preferably of this plugin."""
        for each in (share, *self.shares.values()):
            if each.queue and self._has_room(each):
                self._backlog.add(each.queue.popleft())
                return

    def _finish_slow(self, share: Share, group: ThreadGroup) -> bool:
        """End a job that ran without the turn. Return whether this thread has the turn again."""
        group.held -= 1
        if not share.end_yield():
            del self._slow[this_thread.native_id]
            share.held -= 1
            self._held -= 1
        self._admit_queued(share)
        has_turn = self._turn.acquire(False)
        if has_turn:
            self._active = group
        return has_turn

    def _promote(self, group: ThreadGroup) -> None:
        """Give the turn to a parked thread of this group, or to one that belongs to no engine."""
        self._active = group if group.parked else self._own_group
        if not self.threads.run(self._run_jobs, self._active):  # the system allows no further thread
            self._active = None
            self._turn.release()
            self._watcher.wake()  # it tries again

    def _demote(self, number: int) -> None:
        """Take the turn from a slow job, if it still runs, and give it to another thread."""
        job, group, thread = self._current.pop(number, _NO_JOB)
        if job and group:
            job.share.held += 1
            self._held += 1
            self._slow[thread] = job.share
            self._watcher.mark_slow(thread, job)
            self._release_turn(group)

    def _release_turn(self, group: ThreadGroup) -> None:
        """Pass the turn on from a job of this group that goes on without it."""
        group.held += 1
        self._active = None
        if group.parked and group.held >= group.max_held:
            group.parked.pop().wake()  # to receive the next request
        if group.parked or self._backlog:
            self._promote(group)
        else:
            self._turn.release()
            if self._backlog and self._turn.acquire(False):
                self._promote(group)

    # In the watcher's thread.

    def _is_busy(self) -> bool:
        """Return whether anything runs or waits."""
        queues = (share.queue or share.pool_queue for share in tuple(self.shares.values()))
        return bool(self._current or self._held or self.pool.running or self._backlog) or any(queues)

    def _look(self) -> None:
        """Take the turn from a job that already had it at the last look. Sometimes check the pool and the queues."""
        if self._last_seen in self._current:
            with self._lock:
                self._demote(self._last_seen)
        self._last_seen = self._run_count
        self._looks += 1
        if not self._looks % _LOOKS_PER_CHECK:
            self.pool.mark_slow_jobs()
            self._expire_queued()

    def _expire_queued(self) -> None:
        """Have jobs refused that waited for too long."""
        expired_before = time.monotonic() - self._queue_timeout
        with self._lock:
            shares = tuple(self.shares.values())  # another thread may add one
            queues = [jobs for share in shares for jobs in (share.queue, share.pool_queue) if jobs]
            for jobs in queues:
                for job in [each for each in jobs if each.queued_at < expired_before and not each.has_begun]:
                    jobs.remove(job)
                    self._backlog.add(job)
            if self._backlog and self._turn.acquire(False):
                self._promote(self._own_group)
