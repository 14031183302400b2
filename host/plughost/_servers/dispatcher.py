"""The threads that answer requests on all listeners of a host: leader and followers.

One thread is active: it has the turn, and runs one job after the other. The others are parked. When a request has run
for some milliseconds, a parked thread becomes the active one, and the slow one parks when it is done. Plugins are
served round-robin, and none holds more than its share of threads with slow requests: further requests wait in the
plugin's bounded queue, and are refused when it is full.

Plugins with stores wait for a disk or another process most of their time. So their requests, except reads of SQLite,
run without the turn from the beginning, up to ten of each plugin: their waits overlap, and writes share a commit.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from plughost._servers.processor import Processor
from plughost._servers.shares import Shares
from plughost._servers.work import NO_JOB, Job, Lane, ThreadGroup, Worker
from plughost._waiting import this_thread

TICK_SECONDS: Final = 0.005  # between two checks of the watcher: a request that runs at both is slow
_QUEUE_TICKS: Final = 10  # between two checks of the queues and of blocking jobs
_IDLE_TICKS: Final = 20  # without a request, after which the watcher sleeps until one comes
_TURN_SECONDS: Final = 0.002  # that a thread of an engine runs jobs before it receives again, though more wait
_LOGGER: Final = logging.getLogger("plughost._servers")


class _ThisThread(threading.local):
    worker: Worker | None = None


class Dispatcher(Shares):
    """Hands jobs to threads, one after the other as long as none is slow.

    Args:
        threads: How many slow requests may run at once. A plugin that holds no thread may always begin one more.
        share: How many of these threads one plugin may hold; by default a quarter, and at least two.
        queue_limit: How many requests of one plugin may wait.
        queue_timeout: Seconds after which a request that waits is refused.
        one_processor: Whether its threads share one processor; see `Processor`.

    Attributes:
        processor: The processor that all threads share, if they do.
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
        super().__init__(threads, share, queue_limit, queue_timeout)
        self.processor: Processor = Processor(shared=one_processor)
        self._turn = allocate_lock()  # held for the active thread, which alone takes jobs from the backlog
        self._own_group = ThreadGroup(sys.maxsize)
        self._own_threads: list[threading.Thread] = []
        self._groups = [self._own_group]
        self._active: ThreadGroup | None = None  # of the active thread; None while the turn passes to another
        self._run_count = 0  # jobs begun with the turn so far
        self._current: dict[int, Worker] = {}  # the active thread, by run count. Who removes it may pass the turn on
        self._outside: dict[Worker, Job | None] = {}  # what runs without the turn; None once it is marked as slow
        self._slow_jobs: deque[Job] = deque()  # whose `on_slow` the watcher is to call
        self._this_thread = _ThisThread()
        self._watcher_event = threading.Event()
        self._watcher: threading.Thread | None = None
        self._is_watcher_asleep = True
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
        for worker in parked:
            worker.lock.release()

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

    def submit(self, job: Job) -> None:
        """Have a job run by a thread of the dispatcher."""
        self.backlog.add(job)
        if self._turn.acquire(False):
            with self._lock:
                self._promote(self._own_group)

    def run_or_queue(self, job: Job, group: ThreadGroup) -> None:
        """Run a job in this thread of an engine if no thread is active, else queue it for the active one.

        A blocking job is run at once, or put into its plugin's queue. Return when this thread is to receive the next
        request.
        """
        if job.is_blocking:
            self._run_blocking(job, group)
            return
        job_here: Job | None = job
        if not self._turn.acquire(False):
            self.backlog.add(job)
            job_here = None
            if not self._turn.acquire(False):
                self._lock.acquire()
                if self._active is not group:
                    self._lock.release()
                elif self._park(self._worker(group)):
                    self._run_jobs(None, group)
                return
        if group.held < group.max_held:
            self._active = group
            self._run_jobs(job_here, group)
            return
        if job_here is not None:
            self.backlog.add(job_here)
        with self._lock:
            self._promote(self._own_group)

    def park_if_spare(self, group: ThreadGroup) -> bool:
        """Park this thread of an engine if another one of its threads receives; return whether it did."""
        self._lock.acquire()
        if group.is_closed or len(group.parked) + group.held + (self._active is group) >= group.max_held:
            self._lock.release()
            return False
        if self._park(self._worker(group)):
            self._run_jobs(None, group)
        return True

    def _worker(self, group: ThreadGroup) -> Worker:
        """Return what is known of this thread; prepare it to run jobs when it comes for the first time."""
        worker = self._this_thread.worker
        if worker is None:
            self._this_thread.worker = worker = Worker(group)
            this_thread.yield_turn = partial(self._yield_turn, worker)
            self.processor.bind()
        return worker

    def _yield_turn(self, worker: Worker, long: bool) -> None:
        """Let others run if this job is to wait for long, or if jobs wait now for the turn that it has."""
        if worker.job is NO_JOB or not (long or self.backlog):
            return
        with self._lock:
            share = worker.job.share
            if share.yielded.held < share.yielded.limit:
                had_turn = self._current.pop(worker.number, None) is not None
                if had_turn or (long and worker.lane is share.blocking):
                    self._begin_outside(worker, share.yielded)
                    self._admit_queued(share)  # it doesn't hold the thread that it had, or got from the queue
                    (self._release_turn if had_turn else self._serve_backlog)(worker.group)
            if long and self._outside.get(worker) is not None:
                self._mark_slow(worker)

    def _run_blocking(self, job: Job, group: ThreadGroup) -> None:
        """Run a blocking job, or put it into its plugin's queue."""
        worker = self._worker(group)
        with self._lock:
            has_thread = group.held + 1 < group.max_held  # the active thread may be held next
            function = self._admit(job) if has_thread else None
            if function is not None:
                worker.job = job
                self._begin_outside(worker, job.share.blocking)
                if group.parked:
                    group.parked.pop().lock.release()  # to receive the next request
        if not has_thread:
            self.submit(job)
        elif function is not None:
            if self._is_watcher_asleep:
                self._wake_watcher()
            _call(function)
            if self._finish_outside(worker):
                self._run_jobs(None, group)

    def _finish_outside(self, worker: Worker) -> bool:
        """End a job without the turn, and run queued blocking ones; return whether this thread has the turn now."""
        while True:
            with self._lock:
                if self._outside.pop(worker) is None:
                    self.processor.bind()  # a slow job leaves the processor
                share, lane = worker.job.share, worker.lane
                self._count(worker, None)
                may_follow = lane is share.blocking and not worker.group.is_closed
                if not may_follow or not share.blocking.queue:
                    worker.job = NO_JOB
                    if not may_follow:
                        self._admit_queued(share)
                    if worker.group.is_closed:
                        self._serve_backlog(self._own_group)
                    has_turn = bool(self.backlog) and self._turn.acquire(False)
                    if has_turn:
                        self._active = worker.group
                    return has_turn
                worker.job = share.blocking.queue.popleft()
                worker.job.queued_at = 0.0
                self._begin_outside(worker, share.blocking)
            _call(worker.job.run)

    # The caller has the turn.

    def _run_jobs(self, job: Job | None, group: ThreadGroup) -> None:
        """Run the given job, then those of the backlog, until another thread has the turn or none is left."""
        worker, current = self._worker(group), self._current
        until = time.monotonic() + _TURN_SECONDS
        while job is not None or (job := self._next_job(group)) is not None:
            waited, share, worker.job = job.queued_at, job.share, job
            function = self._begin(worker, job) if self._held or waited or job.is_blocking else job.run
            job = None
            if function is None:
                worker.job = NO_JOB
                continue
            if worker.lane is None:
                self._run_count = worker.number = self._run_count + 1
                current[worker.number] = worker
            if self._is_watcher_asleep:
                self._wake_watcher()
            _call(function)
            function = None
            if current.pop(worker.number, None) is None:  # another thread has the turn now
                if self._finish_outside(worker):
                    continue
                return
            worker.job = NO_JOB
            if waited:  # it got its thread from a slow job that ended; pass it on
                with self._lock:
                    self._admit_queued(share)
            if group is not self._own_group and time.monotonic() > until and self.backlog:
                with self._lock:
                    self._promote(self._own_group)
                return

    def _begin(self, worker: Worker, job: Job) -> Callable[[], None] | None:
        """Admit a job; pass the turn on if it is a blocking one."""
        with self._lock:
            function = self._admit(job)
            if job.is_blocking and function == job.run:
                self._begin_outside(worker, job.share.blocking)
                self._release_turn(worker.group)
        return function

    def _next_job(self, group: ThreadGroup) -> Job | None:
        """Return the next job; None if there is none, and then the turn is released."""
        while (job := self.backlog.pop()) is None:
            self._active = None
            self._turn.release()
            if not self.backlog or not self._turn.acquire(False):
                return None
            self._active = group
        return job

    # The caller holds the lock.

    def _begin_outside(self, worker: Worker, lane: Lane) -> None:
        """Let a thread's job run without the turn."""
        worker.job.is_blocking = False
        self._count(worker, lane)
        self._outside[worker] = worker.job

    def _mark_slow(self, worker: Worker) -> None:
        """Let a job without the turn leave the shared processor; record it for `on_slow`."""
        self._outside[worker] = None
        self.processor.unbind(worker.native_id)
        self._slow_jobs.append(worker.job)

    def _demote(self, number: int) -> None:
        """Take the turn from a slow job, if it still runs, and give it to another thread."""
        worker = self._current.pop(number, None)
        if worker is not None:
            self._begin_outside(worker, worker.job.share.slow)
            self._mark_slow(worker)
            self._release_turn(worker.group)

    def _release_turn(self, group: ThreadGroup) -> None:
        """Pass the turn on from a job of this group that goes on without it."""
        self._active = None
        if group.parked and group.held >= group.max_held:
            group.parked.pop().lock.release()  # to receive the next request
        if self.backlog or (group.parked and group is not self._own_group):
            self._promote(group)
        else:
            self._turn.release()
            self._serve_backlog(group)

    def _serve_backlog(self, group: ThreadGroup) -> None:
        """Have the jobs of the backlog run if no thread is active."""
        if self.backlog and self._turn.acquire(False):
            self._promote(group)

    def _promote(self, group: ThreadGroup) -> None:
        """Give the turn to a parked thread, preferably of this group, or to a new one of the dispatcher."""
        for each in (group, *self._groups):
            if each.parked and each.held < each.max_held:
                worker = each.parked.pop()
                self._active = each
                worker.has_turn = True
                worker.lock.release()
                return
        self._active = self._own_group
        thread = threading.Thread(target=self._run_thread, name="plughost-requests", daemon=True)
        self._own_threads = [*filter(threading.Thread.is_alive, self._own_threads), thread]
        try:
            thread.start()
        except RuntimeError:  # the system allows no further thread: the watcher tries again
            self._active = None
            self._turn.release()
            self._watcher_event.set()

    def _park(self, worker: Worker) -> bool:
        """Release the lock, and wait; return whether this thread has the turn then."""
        worker.has_turn = False
        if worker.group.is_closed:
            self._lock.release()
            return False
        worker.group.parked.append(worker)
        self._lock.release()
        worker.lock.acquire()
        return worker.has_turn

    # In the dispatcher's own threads.

    def _run_thread(self) -> None:
        """Begin with the turn, and park whenever there is nothing to do."""
        while True:
            self._run_jobs(None, self._own_group)
            self._lock.acquire()
            if not self._park(self._worker(self._own_group)):
                return

    def _wake_watcher(self) -> None:
        """Have slow and queued jobs looked for."""
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
        outside: dict[Worker, Job | None] = {}
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
                    for worker, job in outside.items():
                        if job is not None and self._outside.get(worker) is job:
                            self._mark_slow(worker)
                    outside = self._outside.copy()
                    self._expire_queued()
                    self._serve_backlog(self._own_group)
            idle_ticks = 0 if self._current or self._outside or self.backlog else idle_ticks + 1
            if idle_ticks > _IDLE_TICKS:
                self._watcher_event.clear()
                self._is_watcher_asleep = True
                if not (self._current or self._outside or self.backlog or self._slow_jobs or self._is_closed):
                    self._watcher_event.wait()
                idle_ticks = 0


def _call(function: Callable[[], None]) -> None:
    try:
        function()
    except BaseException:
        _LOGGER.exception("a request was not answered")
