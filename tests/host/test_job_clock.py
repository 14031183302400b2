"""Jobs when somebody sets the system's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.host.test_jobs import MORNING, Runs, job, with_jobs
from tests.waiting import wait_until

from plughost import Job
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
