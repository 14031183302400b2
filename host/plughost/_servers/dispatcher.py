"""The threads that answer requests on all listeners of a host: leader and followers.

One thread is active: it has the turn, and runs one job after the other. The others are parked. When a request has run
for some milliseconds, a parked thread becomes the active one, and the slow one parks when it is done. Plugins are
served round-robin, and none holds more than its share of threads with slow requests: further requests wait in the
plugin's bounded queue, and are refused when it is full. Requests of plugins with stores run in the blocking pool
instead (`BlockingPool`).
"""

from __future__ import annotations

import logging
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from typing import Final

from plughost._servers.blocking import MAX_YIELDED, BlockingPool
from plughost._servers.work import Backlog, Job, ParkedThread, Share, ThreadGroup
from plughost._waiting import this_thread

TICK_SECONDS: Final = 0.005  # between two checks of the watcher: a request that runs at both is slow
_QUEUE_TICKS: Final = 10  # between two checks of the queues and the blocking pool
_IDLE_TICKS: Final = 20  # without a request, after which the watcher sleeps until one comes
_MIN_SHARE: Final = 2
_TURN_SECONDS: Final = 0.002  # that a thread of an engine runs jobs before it receives again, though more wait
_MAX_POOL_THREADS: Final = 10  # of one plugin: one for each connection of its store
_NO_JOB: Final = None, None, 0
_LOGGER: Final = logging.getLogger("plughost._servers")


class Dispatcher(BlockingPool):
    """Hands jobs to threads, one after the other as long as none is slow.

    Args:
        threads: How many slow requests may run at once. A plugin that holds no thread may always begin one more.
        share: How many of these threads one plugin may hold; by default a quarter, and at least two.
        queue_limit: How many requests of one plugin may wait.
        queue_timeout: Seconds after which a request that waits is refused.
        one_processor: Whether its threads share one processor; see `Processor`.
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
        super().__init__(share or max(_MIN_SHARE, threads // 4), share or _MAX_POOL_THREADS, queue_limit, one_processor)
        self._max_held = threads
        self._queue_timeout = queue_timeout
        self._backlog = Backlog()
        self._turn = allocate_lock()  # held for the active thread, which alone takes jobs from the backlog
        self._groups = [self._own_group]
        self._active: ThreadGroup | None = None  # of the active thread; None while the turn passes to another
        self._run_count = 0  # jobs begun with the turn so far
        # The job that has the turn, its group and native thread id, by run count. Who removes it may pass the turn on.
        self._current: dict[int, tuple[Job, ThreadGroup, int]] = {}
        self._slow: dict[int, Share] = {}  # the share that counts each slow job, by native thread id
        self._bound_yield_turn = self.yield_turn  # one object, since it is compared by identity
        self._held = 0
        self._watcher_event = threading.Event()
        self._watcher: threading.Thread | None = None
        self._is_closed = False

    def add_group(self, threads: int) -> ThreadGroup:
        """Add the threads of an engine, which call `run_or_queue`."""
        with self._lock:
            self._groups.append(ThreadGroup(threads - 1))
            return self._groups[-1]

    def remove_group(self, group: ThreadGroup) -> None:
        """Release the parked threads of an engine, and park none of them again."""
        with self._lock:
            group.is_closed = True
            self._groups = [each for each in self._groups if each is not group]
            parked, group.parked = group.parked, []
        for parked_thread in parked:
            parked_thread.lock.release()

    def close(self, timeout: float) -> bool:
        """End the dispatcher's own threads; return whether all ended within `timeout` seconds."""
        self._is_closed = True
        self._watcher_event.set()
        self.remove_group(self._own_group)
        deadline = time.monotonic() + timeout
        threads = [each for each in (*self._own_threads, self._watcher) if each and each.is_alive()]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def is_contended(self, share: Share) -> bool:
        """Return whether jobs wait for the turn, or for the threads of this plugin."""
        return bool(self._backlog or share.queue or share.pool_queue)

    def enqueue(self, job: Job, group: ThreadGroup) -> None:
        """Add a job to the backlog; the caller calls `run_or_queue` next."""
        job.group = group
        self._backlog.add(job)

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
            job.group = group
            self._backlog.add(job)
            job_here = None
            if not self._turn.acquire(False):
                self._lock.acquire()
                if self._active is not group or self._is_next_from_other_group(group):
                    self._lock.release()
                elif self._park(group).has_turn:
                    self._run_jobs(None, group)
                return
        if group.held < group.max_held:
            self._active = group
            self._run_jobs(job_here, group)
            return
        if job_here is not None:
            self._backlog.add(job_here)
        with self._lock:
            self._promote(self._own_group)

    def _is_next_from_other_group(self, group: ThreadGroup) -> bool:
        """Return whether another engine received the next job; that one goes on receiving meanwhile."""
        job = self._backlog.peek()
        return job is not None and job.group is not group

    def park_if_spare(self, group: ThreadGroup) -> bool:
        """Park this thread of an engine if another one of its threads receives; return whether it did."""
        self._lock.acquire()
        if group.is_closed or len(group.parked) + group.held + (self._active is group) >= group.max_held:
            self._lock.release()
            return False
        if self._park(group).has_turn:
            self._run_jobs(None, group)
        return True

    # In the thread of a job.

    def yield_turn(self, long: bool) -> None:
        """Pass the turn on if this job is to wait for long or others wait now. A slow one leaves its share."""
        if long and this_thread.native_id in self._slow:
            self._leave_share()
        elif long or self._backlog:
            with self._lock:
                self._pass_turn_on(long)

    def _leave_share(self) -> None:
        """Let a slow job count no more against its plugin's share."""
        with self._lock:
            share = self._slow[this_thread.native_id]
            if share.yielded < MAX_YIELDED:
                del self._slow[this_thread.native_id]
                this_thread.has_yielded = True
                share.yielded += 1
                share.held -= 1
                self._held -= 1
                self._admit_queued(share)
                if self._backlog and self._turn.acquire(False):
                    self._promote(self._own_group)

    def _run_jobs(self, job: Job | None, group: ThreadGroup) -> None:
        """Run the given job, then those of the backlog, until another thread has the turn or none is left."""
        me, current = self._register_thread(self._bound_yield_turn), self._current
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
            if self._is_watcher_asleep:
                self._wake_watcher()
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
                    self._promote(self._own_group)
                return

    def _next_job(self, group: ThreadGroup) -> Job | None:
        """Return the next job; None if there is none, and then the turn is released."""
        while (job := self._backlog.pop()) is None:
            self._active = None
            self._turn.release()
            if not self._backlog or not self._turn.acquire(False):
                return None
            self._active = group
        return job

    def _admit(self, job: Job) -> Callable[[], None] | None:
        """Return a job's function to call, `run` or `refuse`; None if the job was queued in its share."""
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
        if job and group and thread == this_thread.native_id and job.share.yielded < MAX_YIELDED:
            del self._current[number]
            this_thread.has_yielded = True
            job.share.yielded += 1
            if long:
                self._mark_slow(job)
            self._admit_queued(job.share)  # if it came from the queue, it doesn't hold the thread that it got
            self._release_turn(group)

    def _has_room(self, share: Share) -> bool:
        return share.held == 0 or (share.held < share.limit and self._held < self._max_held)

    def _admit_queued(self, share: Share) -> None:
        """Move a queued job whose plugin may begin one to the backlog, preferably of this plugin."""
        for each in (share, *self.shares.values()):
            if each.queue and self._has_room(each):
                self._backlog.add(each.queue.popleft())
                return

    def _finish_slow(self, share: Share, group: ThreadGroup) -> bool:
        """End a job that ran without the turn; return whether this thread has the turn again."""
        group.held -= 1
        if this_thread.has_yielded:
            this_thread.has_yielded = False
            share.yielded -= 1
        else:
            del self._slow[this_thread.native_id]
            share.held -= 1
            self._held -= 1
        self._admit_queued(share)
        has_turn = self._turn.acquire(False)
        if has_turn:
            self._active = group
        return has_turn

    def _park(self, group: ThreadGroup) -> ParkedThread:
        """Release the lock, and wait, unless the group is closed; return what this thread has then."""
        parked_thread = ParkedThread()
        if group.is_closed:
            parked_thread.lock.release()
        else:
            group.parked.append(parked_thread)
        self._lock.release()
        parked_thread.lock.acquire()
        return parked_thread

    def _promote(self, group: ThreadGroup) -> None:
        """Give the turn to a parked thread, preferably of this group, or to a new one of the dispatcher."""
        for each in (group, *self._groups):
            if each.parked and each.held < each.max_held:
                parked_thread = each.parked.pop()
                self._active = each
                parked_thread.has_turn = True
                parked_thread.lock.release()
                return
        self._active = self._own_group
        try:
            self._start_thread(None)
        except RuntimeError:  # the system allows no further thread: the watcher tries again
            self._active = None
            self._turn.release()
            self._watcher_event.set()

    def _demote(self, number: int) -> None:
        """Take the turn from a slow job, if it still runs, and give it to another thread."""
        job, group, thread = self._current.pop(number, _NO_JOB)
        if job and group:
            job.share.held += 1
            self._held += 1
            self._slow[thread] = job.share
            self._mark_slow(job, thread)
            self._release_turn(group)

    def _release_turn(self, group: ThreadGroup) -> None:
        """Pass the turn on from a job of this group that goes on without it."""
        group.held += 1
        self._active = None
        if group.parked and group.held >= group.max_held:
            group.parked.pop().lock.release()  # to receive the next request
        if group.parked or self._backlog:
            self._promote(group)
        else:
            self._turn.release()
            if self._backlog and self._turn.acquire(False):
                self._promote(group)

    # In the dispatcher's own threads.

    def _run_thread(self, job: Job | None) -> None:
        """Begin with a job of the pool, or with the turn, and park whenever there is nothing to do."""
        has_turn = job is None
        while has_turn or job is not None:
            if job is not None:
                self._run_pool_jobs(job, self._own_group)
            else:
                self._run_jobs(None, self._own_group)
            self._lock.acquire()
            parked_thread = self._park(self._own_group)
            has_turn, job = parked_thread.has_turn, parked_thread.job

    def _wake_watcher(self) -> None:
        with self._lock:
            self._is_watcher_asleep = False
            self._watcher_event.set()
            if self._watcher is None:
                watcher = threading.Thread(target=self._watch, name="plughost-watch", daemon=True)
                try:
                    watcher.start()
                    self._watcher = watcher
                except RuntimeError:  # the system allows no further thread: the next request tries again
                    self._is_watcher_asleep = True

    def _watch(self) -> None:
        """Check every few milliseconds what runs and what waits, as long as anything does."""
        self.processor.bind()
        last_seen = idle_ticks = ticks = 0
        has_queued = False
        running: Mapping[int, Job] = {}
        while not self._is_closed:
            time.sleep(TICK_SECONDS)
            if last_seen in self._current:
                with self._lock:
                    self._demote(last_seen)
            last_seen = self._run_count
            while self._slow_jobs:
                self._slow_jobs.popleft().on_slow()
            ticks += 1
            if not ticks % _QUEUE_TICKS:
                with self._lock:
                    running = self._mark_slow_jobs(running)
                has_queued = self._expire_queued()
            idle_ticks = 0 if self._current or has_queued or self._held or self._running else idle_ticks + 1
            if idle_ticks > _IDLE_TICKS:
                self._watcher_event.clear()
                self._is_watcher_asleep = True
                if not (self._current or self._running or self._expire_queued() or self._slow_jobs or self._is_closed):
                    self._watcher_event.wait()
                idle_ticks = 0

    def _expire_queued(self) -> bool:
        """Have jobs refused that waited for too long; return whether any still waits."""
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
        return bool(queues)
