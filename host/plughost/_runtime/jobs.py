"""The jobs of a host: when each is due by the host's clock, and what became of it."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from plughost._api.declarations import Check, Health
from plughost._api.jobs import Job, JobRun, JobView, next_time
from plughost._plugins.failures import cause_of
from plughost._servers.work import FunctionJob

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    import structlog

    from plughost._api.events import Events
    from plughost._plugins.registry import Entry
    from plughost._servers.dispatcher import Dispatcher

_LONGEST_WAIT: Final = 60.0  # after which the clock is looked at again, which somebody may have set
_SET_BACK: Final = 3 * 3600.0  # seconds; after less, nothing is run twice, as cron(8) has it
Outcome = Literal["ok", "failed", "elsewhere"]


class Clock:
    """The machine's time. In tests, another stands in for it."""

    def now(self) -> datetime:
        """Return the date and time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return monotonic()

    def patience(self, seconds: float) -> float | None:
        """Return for how long to wait until so many seconds have passed here; None until somebody says so."""
        return seconds


class _Scheduled:
    """A job and its beat, which go on when a plugin is reused, or declares the same again."""

    def __init__(self, entry: Entry, job: Job, clock: Clock) -> None:
        self.entry = entry
        self.job = job
        self.leaving = False  # no run begins any more
        self.run: JobRun | None = None
        self.running_since: datetime | None = None
        self.started_at: datetime | None = None
        self.seconds = 0.0
        self.outcome: Outcome | None = None
        self.error = ""
        self.counts: Counter[Outcome] = Counter()
        self.missed = 0
        self._clock = clock
        self._starts = job.at_start
        self._beat = clock.monotonic()  # when `every` was due the last time
        self._next = next_time(job, clock.now()) if job.cron is not None else None
        self._ahead = self._look()

    def _look(self) -> float:
        """Return by how much the time is ahead of the clock that nobody can set."""
        return self._clock.now().timestamp() - self._clock.monotonic()

    def follow_clock(self) -> None:
        """Where the clock was set back by far, go by what it shows now."""
        before, self._ahead = self._ahead, self._look()
        if self._next is not None and self._ahead < before - _SET_BACK:
            self._next = next_time(self.job, self._clock.now())

    def take_over(self, entry: Entry, job: Job) -> None:
        """Go on with what the plugin declares now."""
        if (job.every, job.cron, job.timezone) != (self.job.every, self.job.cron, self.job.timezone):
            self.missed += self._overdue()
            self._beat = self._clock.monotonic()
            self._next = next_time(job, self._clock.now()) if job.cron is not None else None
        self.entry, self.job, self.leaving, self._starts = entry, job, False, job.at_start

    @property
    def due(self) -> datetime | None:
        """When it is due."""
        if self._next is not None and not self._starts:
            return self._next
        left = self.left
        return None if left is None else self._clock.now() + timedelta(seconds=left)

    @property
    def left(self) -> float | None:
        """Seconds until it is due."""
        if self._starts:
            return 0.0
        if self.job.every is not None:
            return self._beat + self.job.every - self._clock.monotonic()
        return (self._next - self._clock.now()).total_seconds() if self._next is not None else None

    def _overdue(self) -> int:
        """Return how often it was due since the last time that counts as run or missed."""
        if self.job.every is not None:
            return max(0, int((self._clock.monotonic() - self._beat) // self.job.every))
        number, now, at = 0, self._clock.now(), self._next
        while at is not None and at <= now:
            number, at = number + 1, next_time(self.job, at)
        return number

    def begin(self) -> JobRun:
        """Begin a run. Of several times that it was due, it counts as run for the last."""
        due = self.due
        assert due is not None, "what is due has a time"
        if self._starts:
            self._starts = False
        elif self.job.every is not None:
            beats = max(1, self._overdue())
            self._beat += beats * self.job.every
            due += timedelta(seconds=(beats - 1) * self.job.every)
            self.missed += beats - 1
        elif self._next is not None:
            now = self._clock.now()
            while (following := next_time(self.job, self._next)) is not None and following <= now:
                due, self._next = following, following
                self.missed += 1
            self._next = following
        self.run, self.running_since = JobRun(due), self._clock.now()
        return self.run

    def end(self, outcome: Outcome, error: str, seconds: float) -> None:
        """Note what came of a run."""
        self.started_at, self.running_since, self.run = self.running_since, None, None
        self.seconds, self.outcome, self.error = seconds, outcome, error
        self.counts[outcome] += 1

    def view(self) -> JobView:
        """Return it as plugins see it."""
        return JobView(
            plugin=self.entry.name,
            name=self.job.name,
            description=self.job.description,
            schedule=self.job.schedule,
            due=None if self.leaving else self.due,
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
    """Begins what is due, in the threads that answer requests; a thread of its own looks at the clock meanwhile."""

    def __init__(
        self, dispatcher: Dispatcher, clock: Clock, events: Events, logger: structlog.stdlib.BoundLogger
    ) -> None:
        """Begin without jobs. The events are of each run, in its thread; the log tells what was cut off."""
        self._dispatcher = dispatcher
        self._clock = clock
        self._events = events
        self._logger = logger
        self._changed = threading.Condition()
        self._jobs: dict[tuple[str, str], _Scheduled] = {}
        self._thread: threading.Thread | None = None
        self._check = Check(name="jobs", check=self._health, kinds=frozenset())

    def take_up(self, entries: Iterable[Entry]) -> None:
        """Go on with the jobs of the plugins that serve now, and with no others.

        What was claimed with stores that these plugins don't have any more is given up: for their own new ones, too.
        """
        entries = list(entries)
        kept = {id(store) for entry in entries for store in entry.context.stores.values()}
        for store in {store for each in self._jobs.values() for store in each.entry.context.stores.values()}:
            if store.claims is not None and id(store) not in kept:
                store.claims.close()
        with self._changed:
            declared = {(entry.name, job.name): (entry, job) for entry in entries for job in entry.declared.jobs}
            for key, (entry, job) in declared.items():
                known = self._jobs.get(key)
                if known is None:
                    self._jobs[key] = _Scheduled(entry, job, self._clock)
                elif known.job is not job or known.leaving:
                    known.take_over(entry, job)
                else:
                    known.entry = entry
            self._jobs = {key: each for key, each in self._jobs.items() if key in declared or each.run is not None}
            thread = self._thread
            if not declared:
                self._thread = None
            elif thread is None:
                self._thread = threading.Thread(target=self._watch, name="plughost-jobs", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if thread is not None and not declared:
            thread.join()

    def leave(self, plugins: Collection[str] | None = None) -> None:
        """Begin no more runs of some plugins, or of all, and tell those that go on to end."""
        with self._changed:
            for each in self._of(plugins):
                each.leaving = True
                if each.run is not None:
                    each.run.stop()

    def drain(self, until: float, plugins: Collection[str] | None = None) -> list[str]:
        """Wait until no job of some plugins, or of any, runs, at most until a `time.monotonic()`; name those left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running(plugins), max(0.0, until - monotonic()))
            return self._running(plugins)

    def end(self, until: float) -> None:
        """Wait until no job runs, as `drain`, and do nothing any more."""
        for job in self.drain(until):
            self._logger.warning("cut off", job=job)
        self.take_up(())

    def wake(self) -> None:
        """Look at the clock now."""
        with self._changed:
            self._changed.notify_all()

    def views(self) -> tuple[JobView, ...]:
        """Return every job."""
        with self._changed:
            return tuple(self._jobs[key].view() for key in sorted(self._jobs))

    def checks(self) -> tuple[Check, ...]:
        """Return the check that is down while the last run of a job is one that failed; none without jobs."""
        return (self._check,) if self._jobs else ()

    def _health(self) -> Health:
        failed = {f"{each.plugin}/{each.name}": each.outcome for each in self.views() if each.outcome == "failed"}
        return Health(up=not failed, data=failed)

    def _watch(self) -> None:
        this = threading.current_thread()
        with self._changed:
            while self._thread is this:
                for each in self._ready():
                    run = each.begin()
                    perform = partial(self._perform, each, run, each.entry, each.job)
                    self._dispatcher.submit(FunctionJob(self._dispatcher.share_of(each.entry.name), perform))
                waits = [each.left for each in self._jobs.values() if each.run is None and not each.leaving]
                wait = min((left for left in waits if left is not None and left > 0), default=_LONGEST_WAIT)
                self._changed.wait(self._clock.patience(min(wait, _LONGEST_WAIT)))

    def _ready(self) -> Iterable[_Scheduled]:
        """Yield what is due and can begin: one thread of a plugin's share stays free for requests, if it has two."""
        for each in self._jobs.values():
            each.follow_clock()
            left = each.left
            if left is None or left > 0 or each.run is not None or each.leaving:
                continue
            plugin = each.entry.name
            if len(self._running({plugin})) < max(1, self._dispatcher.share_of(plugin).limit - 1):
                yield each

    def _perform(self, scheduled: _Scheduled, run: JobRun, entry: Entry, job: Job) -> None:
        """Run a job, in a thread of the dispatcher."""
        logger = entry.context.logger.bind(job=job.name)
        begun = monotonic()
        outcome: Outcome = "ok"
        error = ""
        self._events.emit("job_started", entry.name, job=job.name)
        try:
            if job.each_host or _is_ours(entry, job):
                with self._dispatcher.processor.unbound():
                    job.run(run)
            else:
                outcome = "elsewhere"
        except BaseException as raised:
            outcome, error = "failed", cause_of(raised)
            logger.error("job failed", reason=error, exc_info=raised)
        seconds = monotonic() - begun
        self._events.emit("job", entry.name, job=job.name, outcome=outcome, error=error, seconds=seconds)
        with self._changed:
            scheduled.end(outcome, error, seconds)
            self._changed.notify_all()

    def _of(self, plugins: Collection[str] | None) -> list[_Scheduled]:
        return [each for (plugin, _), each in self._jobs.items() if plugins is None or plugin in plugins]

    def _running(self, plugins: Collection[str] | None) -> list[str]:
        return [f"the job {each.job.name} of {each.entry.name}" for each in self._of(plugins) if each.run is not None]


def _is_ours(entry: Entry, job: Job) -> bool:
    """Return whether this host is the one that runs a job, of those that share the plugin's database."""
    shared = [store for store in entry.context.stores.values() if store.claims is not None]
    shared.sort(key=lambda store: (store.plugin != entry.name, store.name))
    claims = shared[0].claims if shared else None
    return claims is None or claims.hold(f"job {entry.name}/{job.name}")
