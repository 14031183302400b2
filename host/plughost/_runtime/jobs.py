"""Jobs: when each is due by the host's clock, and the results of its runs."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from plughost._api.declarations import Check, Health
from plughost._api.jobs import Job, JobRun, JobView, next_time
from plughost._plugins.failures import cause_of
from plughost._servers.work import MAX_YIELDED, FunctionJob
from plughost.stores._errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import structlog

    from plughost._api.events import Events
    from plughost._plugins.registry import PluginRecord
    from plughost._servers.dispatcher import Dispatcher

_MAX_WAIT: Final = 60.0  # seconds until the clock, which may have been set, is read again
_MIN_SETBACK: Final = 3 * 3600.0  # seconds; if the clock is set back by less, no job runs twice, as with cron(8)
_MAX_ADVANCE: Final = 7 * 86400.0  # seconds; a clock that was set ahead by more had been wrong, so nothing was missed
_CLAIM_PAUSE: Final = 0.1  # seconds between attempts to ask which host runs a job
_TAKEOVER_PAUSE: Final = 5.0  # seconds until a host asks again who runs a job that is due no more
Outcome = Literal["ok", "failed", "elsewhere"]


class Clock:
    """The machine's time. Tests replace it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return monotonic()

    def wait_timeout(self, seconds: float) -> float | None:
        """Return the timeout to wait for these seconds of this clock; None to wait for `Jobs.wake`."""
        return seconds


class _Run(JobRun):
    """A run that tells the scheduler when it waits: other jobs of the plugin may begin meanwhile."""

    def __init__(self, due: datetime, wake: Callable[[], None]) -> None:
        super().__init__(due)
        self.is_waiting = False
        self._wake = wake

    def wait(self, seconds: float) -> bool:
        self.is_waiting = True
        self._wake()
        try:
            return super().wait(seconds)
        finally:
            self.is_waiting = False


class _Scheduled:
    """A job with its schedule and results. They outlive a reload if the plugin declares the job again."""

    def __init__(self, record: PluginRecord, job: Job, clock: Clock) -> None:
        self.record = record
        self.job = job
        self.is_stopping = False  # no further run begins
        self.run: _Run | None = None
        self.running_since: datetime | None = None
        self.started_at: datetime | None = None
        self.seconds = 0.0
        self.outcome: Outcome | None = None
        self.error = ""
        self.counts: Counter[Outcome] = Counter()
        self.missed = 0
        self._clock = clock
        self._start_due = clock.monotonic() if job.at_start else None
        self._last_due = clock.monotonic()  # on the monotonic clock, for `every`
        self._next_cron_time = next_time(job, clock.now()) if job.cron is not None else None
        self._clock_offset = self._read_clock_offset()

    def _read_clock_offset(self) -> float:
        """Return the offset of the settable clock from the monotonic clock, in seconds."""
        return self._clock.now().timestamp() - self._clock.monotonic()

    def check_clock(self) -> None:
        """Schedule `cron` anew if the clock was set back by hours, or ahead by more than a week."""
        before, self._clock_offset = self._clock_offset, self._read_clock_offset()
        if self._next_cron_time is not None and not -_MIN_SETBACK <= self._clock_offset - before <= _MAX_ADVANCE:
            self._next_cron_time = next_time(self.job, self._clock.now())

    def update(self, record: PluginRecord, job: Job) -> None:
        if (job.every, job.cron, job.timezone) != (self.job.every, self.job.cron, self.job.timezone):
            self.missed += self._count_overdue()
            self._last_due = self._clock.monotonic()
            self._next_cron_time = next_time(job, self._clock.now()) if job.cron is not None else None
        self.record, self.job, self.is_stopping = record, job, False
        self._start_due = self._clock.monotonic() if job.at_start else None

    @property
    def due(self) -> datetime | None:
        if self._next_cron_time is not None and self._start_due is None:
            return self._next_cron_time
        seconds_left = self.seconds_left
        return None if seconds_left is None else self._clock.now() + timedelta(seconds=seconds_left)

    @property
    def seconds_left(self) -> float | None:
        if self._start_due is not None:
            return self._start_due - self._clock.monotonic()
        if self.job.every is not None:
            return self._last_due + self.job.every - self._clock.monotonic()
        return (self._next_cron_time - self._clock.now()).total_seconds() if self._next_cron_time is not None else None

    def _count_overdue(self) -> int:
        """Return how many times it became due that count neither as run nor as missed."""
        if self.job.every is not None:
            return max(0, int((self._clock.monotonic() - self._last_due) // self.job.every))
        count, now, due = 0, self._clock.now(), self._next_cron_time
        while due is not None and due <= now:
            count, due = count + 1, next_time(self.job, due)
        return count

    def begin(self, wake: Callable[[], None]) -> _Run:
        """Begin a run, which calls `wake` when it waits. If several are due, it counts for the last one only."""
        due = self.due
        assert due is not None, "a due job has a time"
        if self._start_due is not None:
            self._start_due = None
        elif self.job.every is not None:
            count = max(1, self._count_overdue())
            self._last_due += count * self.job.every
            due += timedelta(seconds=(count - 1) * self.job.every)
            self.missed += count - 1
        elif self._next_cron_time is not None:
            now = self._clock.now()
            while (following := next_time(self.job, self._next_cron_time)) is not None and following <= now:
                due, self._next_cron_time = following, following
                self.missed += 1
            self._next_cron_time = following
        self.run, self.running_since = _Run(due, wake), self._clock.now()
        return self.run

    def finish(self, outcome: Outcome, error: str, seconds: float, runs_here: bool) -> None:
        """Record the end of a run. If it ran elsewhere, or nobody could tell, and is due no more, ask again soon."""
        self.started_at, self.running_since, self.run = self.running_since, None, None
        self.seconds, self.outcome, self.error = seconds, outcome, error
        self.counts[outcome] += 1
        if not runs_here and self.seconds_left is None:
            self._start_due = self._clock.monotonic() + _TAKEOVER_PAUSE

    def view(self) -> JobView:
        return JobView(
            plugin=self.record.name,
            name=self.job.name,
            description=self.job.description,
            schedule=self.job.schedule,
            due=None if self.is_stopping else self.due,
            running_since=self.running_since,
            started_at=self.started_at,
            seconds=self.seconds,
            outcome=self.outcome,
            error=self.error,
            runs=self.counts["ok"],
            failures=self.counts["failed"],
            missed=self.missed,
        )


class Jobs:
    """Runs due jobs in the threads that answer requests. The scheduler has its own thread."""

    def __init__(
        self, dispatcher: Dispatcher, clock: Clock, events: Events, logger: structlog.stdlib.BoundLogger
    ) -> None:
        """Begin without jobs. The thread of a run emits its events."""
        self._dispatcher = dispatcher
        self._clock = clock
        self._events = events
        self._logger = logger
        self._condition = threading.Condition()
        self._scheduled: dict[tuple[str, str], _Scheduled] = {}
        self._declared: Collection[tuple[str, str]] = ()  # keys of the jobs that are not only there until they end
        self._thread: threading.Thread | None = None
        self._check = Check(name="jobs", check=self._health, kinds=frozenset())

    def start(self) -> None:
        """Start the scheduler, before the first jobs are set, unless it runs.

        Raises:
            RuntimeError: The system allows no further thread.
        """
        with self._condition:
            if self._thread is None:
                thread = threading.Thread(target=self._run_scheduler, name="plughost-jobs", daemon=True)
                thread.start()  # it waits for the condition
                self._thread = thread

    def set_plugins(self, records: Iterable[PluginRecord]) -> None:
        """Schedule the jobs of these plugins, and no others. Without any, the scheduler ends.

        Claims of stores that these plugins no longer use are released: the same stores, opened anew, need them.
        """
        records = list(records)
        current_stores = {id(store) for record in records for store in record.context.stores.values()}
        for store in {store for each in self._scheduled.values() for store in each.record.context.stores.values()}:
            if store.claims is not None and id(store) not in current_stores:
                store.claims.close()
        with self._condition:
            declared = {(record.name, job.name): (record, job) for record in records for job in record.declared.jobs}
            for key, (record, job) in declared.items():
                scheduled = self._scheduled.get(key)
                if scheduled is None:
                    self._scheduled[key] = _Scheduled(record, job, self._clock)
                elif scheduled.job is not job or scheduled.is_stopping:
                    scheduled.update(record, job)
                else:
                    scheduled.record = record
            self._declared = declared.keys()
            self._forget_undeclared()
            thread = None if declared else self._thread
            if thread is not None:
                self._thread = None
            self._condition.notify_all()
        if thread is not None:
            thread.join()

    def stop(self, plugins: Collection[str] | None = None) -> None:
        """Begin no further runs of some plugins, or of all, and ask running ones to stop."""
        with self._condition:
            for each in self._of_plugins(plugins):
                each.is_stopping = True
                if each.run is not None:
                    each.run.stop()

    def drain(self, until: float, plugins: Collection[str] | None = None) -> list[str]:
        """Wait for the running jobs of some plugins, or of all, until a `time.monotonic()`. Return those left."""
        with self._condition:
            self._condition.wait_for(lambda: not self._running(plugins), max(0.0, until - monotonic()))
            return self._running(plugins)

    def close(self, until: float) -> None:
        """Drain all jobs, and stop the scheduler."""
        for job in self.drain(until):
            self._logger.warning("cut off", job=job)
        self.set_plugins(())

    def wake(self) -> None:
        """Make the scheduler read the clock now."""
        with self._condition:
            self._condition.notify_all()

    def views(self) -> tuple[JobView, ...]:
        with self._condition:
            return tuple(self._scheduled[key].view() for key in sorted(self._scheduled))

    def checks(self) -> tuple[Check, ...]:
        """Return the check that is down while the last run of any job failed; none without jobs."""
        return (self._check,) if self._scheduled else ()

    def _health(self) -> Health:
        failed = {f"{each.plugin}/{each.name}": each.outcome for each in self.views() if each.outcome == "failed"}
        return Health(up=not failed, data=failed)

    def _run_scheduler(self) -> None:
        this = threading.current_thread()
        with self._condition:
            while self._thread is this:
                for each, run in self._begin_due():
                    perform = partial(self._run, each, run, each.record, each.job)
                    self._dispatcher.submit(FunctionJob(self._dispatcher.share_of(each.record.name), perform))
                idle = [each for each in self._scheduled.values() if each.run is None and not each.is_stopping]
                waits = [left for each in idle if (left := each.seconds_left) is not None and left > 0]
                self._condition.wait(self._clock.wait_timeout(min([*waits, _MAX_WAIT])))

    def _begin_due(self) -> Iterable[tuple[_Scheduled, _Run]]:
        """Begin due jobs and yield their runs. They leave one thread of a plugin's share to requests, if it has two."""
        runs: dict[str, list[_Run]] = defaultdict(list)
        for each in self._scheduled.values():
            if each.run is not None:
                runs[each.record.name].append(each.run)
        for each in self._scheduled.values():
            each.check_clock()
            seconds_left = each.seconds_left
            if seconds_left is None or seconds_left > 0 or each.run is not None or each.is_stopping:
                continue
            own = runs[each.record.name]
            waiting = min(MAX_YIELDED, sum(run.is_waiting for run in own))
            if len(own) - waiting < max(1, self._dispatcher.share_of(each.record.name).limit - 1):
                own.append(each.begin(self.wake))
                yield each, own[-1]

    def _run(self, scheduled: _Scheduled, run: JobRun, record: PluginRecord, job: Job) -> None:
        logger = record.context.logger.bind(job=job.name)
        started = monotonic()
        outcome: Outcome = "ok"
        error = ""
        runs_here = False
        emit = partial(self._events.emit, plugin=record.name, job=job.name)
        try:
            runs_here = job.each_host or _runs_here(record, job, run)
            if runs_here:
                emit("job_started")
                with self._dispatcher.processor.unbound():
                    job.run(run)
            else:
                outcome = "elsewhere"
        except BaseException as raised:
            outcome, error = "failed", cause_of(raised)
            if not runs_here:  # nobody could tell which host runs it
                emit("job_started")
            if isinstance(raised, StoreError) and _has_closed_store(record):
                logger.warning("job failed", reason=error)  # a reload replaced it, and nothing is wrong with its code
            else:
                logger.error("job failed", reason=error, exc_info=raised)
        seconds = monotonic() - started
        if outcome != "elsewhere":
            emit("job", outcome=outcome, error=error, seconds=seconds)
        with self._condition:
            scheduled.finish(outcome, error, seconds, runs_here)
            self._forget_undeclared()
            self._condition.notify_all()

    def _forget_undeclared(self) -> None:
        self._scheduled = {
            key: each for key, each in self._scheduled.items() if key in self._declared or each.run is not None
        }

    def _of_plugins(self, plugins: Collection[str] | None) -> list[_Scheduled]:
        return [each for (plugin, _), each in self._scheduled.items() if plugins is None or plugin in plugins]

    def _running(self, plugins: Collection[str] | None) -> list[str]:
        return [
            f"the job {each.job.name} of {each.record.name}"
            for each in self._of_plugins(plugins)
            if each.run is not None
        ]


def _has_closed_store(record: PluginRecord) -> bool:
    return any(store.state == "closed" for store in record.context.stores.values())


def _runs_here(record: PluginRecord, job: Job, run: JobRun) -> bool:
    """Return whether this host runs a job, of all hosts that share the plugin's database; wait for it as requests do.

    Raises:
        StoreError: The database could not be reached.
    """
    shared = [store for store in record.context.stores.values() if store.claims is not None]
    shared.sort(key=lambda store: (store.plugin != record.name, store.name))
    claims = shared[0].claims if shared else None
    if claims is None:
        return True
    deadline = monotonic() + shared[0].database.config.patience
    while True:
        try:
            return claims.acquire(f"job {record.name}/{job.name}")
        except StoreError:
            if run.stopping or monotonic() >= deadline:
                raise
            run.wait(_CLAIM_PAUSE)
