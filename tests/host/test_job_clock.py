"""Jobs when the clock is set, or changes to and from summer time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.host.test_jobs import MORNING, Runs, job, with_jobs
from tests.waiting import wait_until

from plughost import Job
from plughost._api.jobs import next_time
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import pytest


def test_setting_the_clock_back_delays_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run is computed from the present time, even if the host started in a year far ahead."""
    runs = Runs()
    plugin = with_jobs(Job(name="hourly", run=runs, cron="0 * * * *"))
    ahead = datetime(2036, 1, 1, tzinfo=UTC)
    with running_host(distributions=[plugin_distribution("a", plugin)], now=ahead) as host:
        monkeypatch.setattr(host.host.clock, "_start", MORNING)
        host.advance(60)
        wait_until(lambda: job(host).due == MORNING + timedelta(hours=1))
        host.advance(3600)
        wait_until(lambda: len(runs.due) == 1)


def test_setting_the_clock_ahead_by_years_delays_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that starts in 1970, for want of a clock, doesn't count each minute until now as missed."""
    runs = Runs()
    plugin = with_jobs(Job(name="often", run=runs, cron="* * * * *"))
    with running_host(distributions=[plugin_distribution("a", plugin)], now=datetime(1970, 1, 1, tzinfo=UTC)) as host:
        monkeypatch.setattr(host.host.clock, "_start", MORNING)
        host.advance(30)
        wait_until(lambda: job(host).due == MORNING + timedelta(minutes=1))
        host.advance(30)
        wait_until(lambda: runs.due == [MORNING + timedelta(minutes=1)])
        assert job(host).missed == 0


def test_a_start_in_the_hour_that_comes_twice_repeats_no_run() -> None:
    """When summer time ends, a local time is due in the first of the two hours only, whenever the host starts."""
    nightly = Job(name="report", run=print, cron="30 2 * * *", timezone="Europe/Berlin")
    first, second = (datetime(2026, 10, 25, hour, 10, tzinfo=UTC) for hour in (0, 1))
    assert next_time(nightly, first) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert next_time(nightly, second) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
