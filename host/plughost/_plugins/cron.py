"""When a job is due that goes by the clock on the wall."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plughost._api.jobs import Job


def next_time(job: Job, after: datetime) -> datetime | None:
    """Return when a job's `cron` is due next, in UTC; None for never. Changes to summer time count as cron has them.

    Args:
        job: The job.
        after: A moment before that.

    Raises:
        ValueError: Its `cron` or its `timezone` can't be understood; the message says which and why.
    """
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - only few plugins have such a job

    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - see above

    try:
        zone = UTC if job.timezone == "UTC" else ZoneInfo(job.timezone)
    except (KeyError, ValueError, TypeError, OSError):
        message = f"there is no time zone {job.timezone!r} on this machine"
        raise ValueError(message) from None
    try:
        found = next(CronSim(str(job.cron), after.astimezone(zone)), None)
    except CronSimError as error:
        message = f"cron {job.cron!r}: {error}; it has five fields, such as '30 4 * * mon-fri'"
        raise ValueError(message) from None
    return found.astimezone(UTC) if found is not None else None
