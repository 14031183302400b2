"""Scheduled jobs: what plugins declare, what a run gets, and how others see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from plughost._waiting import about_to_wait

_UNITS: Final[tuple[tuple[int, str], ...]] = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Scheduled work of a plugin, run by the host in the plugin's share of the threads.

    A host never runs a job twice at once. If a job becomes due while it still runs, it runs once more right after,
    however often it was due. If several hosts share the plugin's PostgreSQL database, one of them runs the job, and
    another one takes over when that one stops. Exceptions are logged, and the schedule goes on.

    Attributes:
        name: Unique within the plugin.
        run: Called with a `JobRun` while the stores are open. Its result is ignored.
        every: Seconds between the times when it is due, from 0.001 to 3155760000 (100 years). It is first due that long
            after the plugin has started.
        cron: Minute, hour, day of the month, month and day of the week when it is due, as in crontab(5), such as
            `30 4 * * mon-fri`. Not together with `every`.
        at_start: Whether it is also due once right after the plugin has started.
        timezone: The time zone of `cron`, such as `Europe/Berlin`.
        each_host: Whether each host runs it, even if several share the plugin's database.
        description: One sentence for operators.
    """

    name: str
    run: Callable[[JobRun], object]
    every: float | None = None
    cron: str | None = None
    at_start: bool = False
    timezone: str = "UTC"
    each_host: bool = False
    description: str = ""

    @property
    def schedule(self) -> str:
        """When it runs, in words."""
        often = f"every {_interval(self.every)}" if self.every is not None else ""
        cron = f"{self.cron} ({self.timezone})" if self.cron is not None else ""
        return ", ".join(filter(None, ("at start" if self.at_start else "", often, cron)))


def _interval(seconds: float) -> str:
    """Return an interval in the largest unit that gives a whole number."""
    size, unit = next(each for each in _UNITS if each == _UNITS[-1] or seconds % each[0] == 0)
    count = seconds / size
    if size == 1:
        return f"{count:g} s"
    return unit if count == 1 else f"{count:g} {unit}s"


class JobRun:
    """One run of a job, as its function gets it.

    Attributes:
        due: When it was due, with a time zone, even if the run begins late.
    """

    def __init__(self, due: datetime) -> None:
        self.due = due
        self._stop = threading.Event()

    @property
    def stopping(self) -> bool:
        """Whether the run should end: the host stops, or another version of the plugin takes over. Check it often."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the run should end. Return whether it should. Other work of the plugin goes on."""
        about_to_wait(long=True)
        return self._stop.wait(seconds)

    def stop(self) -> None:
        """Ask the run to end. For the host, and for tests."""
        self._stop.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job of an active plugin, and its runs since the host started.

    Attributes:
        plugin: The plugin.
        name: Its name.
        description: The plugin's description of it.
        schedule: When it runs, in words.
        due: When it is due next. None if it is not.
        running_since: When the current run began. None if there is none.
        started_at: When the last finished run began. None before the first.
        seconds: How long that run took.
        outcome: The result of that run. `elsewhere` means that another host runs the job. None before the first.
        error: Its exception, in one line. Empty if it did not fail.
        runs: How many runs succeeded on this host.
        failures: How many runs raised an exception.
        missed: How often it was due and did not run, since it still ran or the host was late.
    """

    plugin: str
    name: str
    description: str
    schedule: str
    due: datetime | None
    running_since: datetime | None
    started_at: datetime | None
    seconds: float
    outcome: Literal["ok", "failed", "elsewhere"] | None
    error: str
    runs: int
    failures: int
    missed: int


def next_time(job: Job, after: datetime) -> datetime | None:
    """Return when a job's `cron` is due next, in UTC. None for never. Changes to summer time are handled as by cron.

    Raises:
        ValueError: Its `cron` or its `timezone` can't be understood. The message says which and why.
    """
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only few plugins have such a job

    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - see above

    try:
        zone = UTC if job.timezone == "UTC" else ZoneInfo(job.timezone)
    except (KeyError, ValueError, TypeError, OSError):
        raise ValueError(f"there is no time zone {job.timezone!r} on this machine") from None
    try:
        times = (each.astimezone(UTC) for each in CronSim(str(job.cron), after.astimezone(zone)))
        # In the hour that comes twice, CronSim's first time may be past: the one in the first of the two.
        return next((each for each in times if each > after), None)
    except CronSimError as error:
        raise ValueError(f"cron {job.cron!r}: {error}; it has five fields, such as '30 4 * * mon-fri'") from None
