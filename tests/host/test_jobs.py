"""Scheduled jobs: each runs once at a time, through reloads and until the drain."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import getcontext
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import Plugin, Says, group_of, reason
from tests.waiting import wait_until

from plughost import Job, JobRun, JobView, Store
from plughost.testing import plugin_distribution, running_host, store_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import falcon

    from plughost.testing import RunningHost

MORNING = datetime(2026, 3, 28, 4, 0, tzinfo=UTC)


class Runs:
    """A job that records when it was due."""

    def __init__(self) -> None:
        """Start with no records."""
        self.due: list[datetime] = []

    def __call__(self, run: JobRun) -> None:
        """Record the due time."""
        self.due.append(run.due)


class Holds:
    """A job that runs until the test releases it, or, if it listens, until it is asked to end."""

    def __init__(self, *, listens: bool = False) -> None:
        """Start held."""
        self.begun, self.ended, self.go = threading.Semaphore(0), threading.Event(), threading.Event()
        self.listens = listens
        self.due: datetime | None = None

    def __call__(self, run: JobRun) -> None:
        """Run until released."""
        self.due = run.due
        self.begun.release()
        if self.listens:
            run.wait(60)
            assert run.stopping
        else:
            self.go.wait(60)
        self.ended.set()


class HoldsRequest:
    """A resource that answers when the test releases it."""

    def __init__(self) -> None:
        """Start held."""
        self.begun, self.go = threading.Event(), threading.Event()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer after the release."""
        self.begun.set()
        self.go.wait(60)


class Changing:
    """A plugin that changes at each reload through its settings."""

    def __init__(self, declare: Callable[[], Job]) -> None:
        """Store the function that declares its job; each reload calls it again."""
        self.plugin = Plugin(
            register_jobs=lambda context: [declare()], register_routes=lambda context: [group_of(Says("hello"))]
        )
        self._limit = 1000

    def reload(self, host: RunningHost) -> None:
        """Change the settings and reload."""
        file = host.host.settings.file
        assert file is not None
        self._limit += 1
        file.write_text(f"{file.read_text().partition('[plugins.a]')[0]}[plugins.a]\nbody_limit = {self._limit}\n")
        assert host.host.reload().changed == ("a",)


def with_jobs(*jobs: Job, **hooks: Callable[..., Any]) -> Plugin:
    """Return a plugin with jobs, and a route."""
    return Plugin(
        register_jobs=lambda context: list(jobs), register_routes=lambda context: [group_of(Says("hello"))], **hooks
    )


def job(host: RunningHost) -> JobView:
    """Return the host's only job."""
    (found,) = host.host.view.jobs
    return found


def test_a_job_runs_at_the_start_and_in_each_period() -> None:
    """It is due at the start and at the end of each period, without drift."""
    runs = Runs()
    plugin = with_jobs(Job(name="sweep", run=runs, every=60, at_start=True))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        wait_until(lambda: len(runs.due) == 1)
        for number in (2, 3):
            host.advance(59)
            host.advance(1)
            wait_until(lambda number=number: len(runs.due) == number)  # type: ignore[misc] # mypy can't type a lambda's default
        wait_until(lambda: job(host).runs == 3)
        seen = job(host)
    assert [(due - MORNING).total_seconds() for due in runs.due] == [0, 60, 120]
    assert (seen.schedule, seen.outcome, seen.failures, seen.missed) == ("at start, every minute", "ok", 0, 0)


@pytest.mark.parametrize(
    ("every", "shown"),
    [(86400, "every day"), (7200, "every 2 hours"), (90, "every 90 s"), (0.5, "every 0.5 s"), (1, "every 1 s")],
)
def test_an_interval_is_shown_in_its_largest_unit(every: float, shown: str) -> None:
    """People read hours more easily than thousands of seconds."""
    assert Job(name="sweep", run=print, every=every).schedule == shown


def test_a_cron_time_follows_its_time_zone() -> None:
    """When summer time begins, the local time of the run stays the same, and its UTC time changes."""
    runs = Runs()
    plugin = with_jobs(Job(name="report", run=runs, cron="30 4 * * *", timezone="Europe/Berlin"))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        for day in (1, 2):
            host.advance(24 * 3600)
            wait_until(lambda day=day: len(runs.due) == day)  # type: ignore[misc] # as above
    assert runs.due == [datetime(2026, 3, 29, 2, 30, tzinfo=UTC), datetime(2026, 3, 30, 2, 30, tzinfo=UTC)]


@pytest.mark.parametrize("when", [{"every": 60.0}, {"cron": "* * * * *"}])
def test_a_running_job_is_not_started_again(when: dict[str, Any]) -> None:
    """If it was due three times meanwhile, it runs once more, for the last of them, and reports the missed runs."""
    holds = Holds()
    plugin = with_jobs(Job(name="slow", run=holds, **when))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        host.advance(60)
        assert holds.begun.acquire(timeout=30)
        host.advance(180)
        assert job(host).running_since is not None
        assert not holds.begun.acquire(blocking=False)
        holds.go.set()
        assert holds.begun.acquire(timeout=30)
        wait_until(lambda: job(host).runs == 2)
        assert (job(host).missed, holds.due) == (2, MORNING + timedelta(minutes=4))
        assert not holds.begun.acquire(blocking=False)


def test_a_jobs_exception_is_reported_and_it_runs_again() -> None:
    """A failure is in the view, the events and the health until a run succeeds."""
    trouble: list[Exception] = [ValueError("no disk")]
    events: list[Any] = []

    def work(run: JobRun) -> None:
        if trouble:
            raise trouble.pop()

    plugin = with_jobs(Job(name="work", run=work, every=1))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        host.host.events.subscribe(events.append)
        host.advance(1)
        wait_until(lambda: job(host).failures == 1)
        assert "ValueError" in job(host).error
        (check,) = [each for each in host.host.view.checks if each.name == "jobs"]
        assert (check.check().up, check.check().data) == (False, {"a/work": "failed"})
        host.advance(1)
        wait_until(lambda: job(host).runs == 1)
        assert check.check().up
    assert [(each.name, each.fields.get("outcome")) for each in events if each.name.startswith("job")] == [
        ("job_started", None),
        ("job", "failed"),
        ("job_started", None),
        ("job", "ok"),
    ]


def test_what_a_job_sets_for_its_thread_ends_with_the_run() -> None:
    """Requests and other jobs, which use the thread next, don't have its precision of decimals."""
    seen: list[int] = []

    def careless(run: JobRun) -> None:
        seen.append(getcontext().prec)
        getcontext().prec = 2

    plugin = with_jobs(Job(name="sweep", run=careless, every=1))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        for number in range(1, 20):
            host.advance(1)
            wait_until(lambda number=number: job(host).runs == number)  # type: ignore[misc] # mypy can't type a lambda's default
    assert set(seen) == {28}


def test_requests_are_answered_while_all_jobs_of_a_plugin_run() -> None:
    """Jobs leave one thread of the plugin's share to requests; a further due job waits until another ends."""
    holds = Holds()
    plugin = with_jobs(*(Job(name=f"job{number}", run=holds, at_start=True) for number in range(3)))
    share = {"requests": {"plugin_threads": 3}}
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], settings=share) as host:
        assert all(holds.begun.acquire(timeout=30) for _ in range(2))
        with host.client() as client:
            assert all(client.get("/say").status_code == 200 for _ in range(20))
        assert not holds.begun.acquire(blocking=False)
        holds.go.set()
        assert holds.begun.acquire(timeout=30)


def test_a_job_ends_at_the_drain_before_its_plugin_stops() -> None:
    """The host asks the job to end, and calls `stopping` only when no job runs any more."""
    holds = Holds(listens=True)
    order: list[bool] = []
    plugin = with_jobs(
        Job(name="long", run=holds, at_start=True), stopping=lambda context: order.append(holds.ended.is_set())
    )
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)]):
        assert holds.begun.acquire(timeout=30)
    assert order == [True]


def test_a_reload_keeps_jobs_of_reused_plugins_and_ends_others() -> None:
    """The schedule continues with one run each time; the job of a removed plugin is asked to end, and is gone."""
    runs, holds = Runs(), Holds(listens=True)
    leaving = plugin_distribution(
        "b", Plugin(register_jobs=lambda context: [Job(name="long", run=holds, at_start=True)])
    )
    installed = [plugin_distribution("a", with_jobs(Job(name="beat", run=runs, every=1))), leaving]
    with running_host(distributions=installed, now=MORNING) as host:
        assert holds.begun.acquire(timeout=30)
        installed.remove(leaving)
        for number in range(1, 21):
            host.host.reload(accept=["b"])
            host.advance(1)
            wait_until(lambda number=number: len(runs.due) == number)  # type: ignore[misc] # as above
        assert holds.ended.is_set()
        assert job(host).name == "beat"
    assert [(due - MORNING).total_seconds() for due in runs.due] == [*range(1, 21)]


def test_a_changed_plugin_keeps_the_schedule(tmp_path: Path) -> None:
    """After a change of its settings, the new function runs from then on, at the times already due."""
    made: list[Runs] = []

    class Sweeps:
        def register_jobs(self, context: Any) -> list[Job]:
            made.append(Runs())
            return [Job(name="sweep", run=made[-1], every=60)]

    plugin = Plugin(
        register_jobs=lambda context: Sweeps().register_jobs(context),
        register_routes=lambda context: [group_of(Says("hello"))],
    )
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        host.advance(50)
        file = host.host.settings.file
        assert file is not None
        file.write_text(file.read_text() + "[plugins.a]\nbody_limit = 1000\n")
        assert host.host.reload().swapped
        host.advance(10)
        wait_until(lambda: len(made) == 2 and len(made[1].due) == 1)
    assert made[0].due == []


@pytest.mark.parametrize("when", [{"every": 60.0}, {"cron": "* * * * *"}])
def test_every_due_run_is_run_or_counted_as_missed(when: dict[str, Any]) -> None:
    """None is lost if runs are short, overlap later due times, fail, or end by a reload of their plugin."""
    held = threading.Event()

    def work(run: JobRun) -> None:
        while held.is_set() and not run.stopping:
            run.wait(0.01)
        if run.due.minute % 3 == 0:
            raise ValueError("each third time")

    def counted() -> int:
        return job(host).runs + job(host).failures + job(host).missed

    def settled() -> bool:
        return counted() == beats or (held.is_set() and job(host).running_since is not None)

    beats = 0
    changing = Changing(lambda: Job(name="work", run=work, **when))
    with running_host(["a"], distributions=[plugin_distribution("a", changing.plugin)], now=MORNING) as host:
        for number, minutes in enumerate([1, 1, 7, 1, 13, 2, 1, 1440, 1, 3] * 3):
            if number % 4 == 1:
                held.set()
            host.advance(60 * minutes)
            beats += minutes
            if number % 4 == 3:
                changing.reload(host)
                held.clear()
            wait_until(settled)
        held.clear()
        wait_until(lambda: counted() == beats)
        assert job(host).missed > 0
        assert job(host).failures > 0


@pytest.mark.parametrize("rarer", [{"every": 90.0}, {"cron": "0 * * * *"}])
@pytest.mark.parametrize("when", [{"every": 60.0}, {"cron": "* * * * *"}])
def test_missed_runs_are_counted_when_the_schedule_changes(when: dict[str, Any], rarer: dict[str, Any]) -> None:
    """Due times during a run count as missed, even if the new version has another schedule."""
    holds = Holds(listens=True)
    beats = iter([when, rarer])
    changing = Changing(lambda: Job(name="work", run=holds, **next(beats)))
    with running_host(["a"], distributions=[plugin_distribution("a", changing.plugin)], now=MORNING) as host:
        host.advance(60)
        assert holds.begun.acquire(timeout=30)
        host.advance(600)
        changing.reload(host)
        assert job(host).missed == 10


def migrations_of(folder: Path, steps: int) -> Path:
    """Return a folder with the given number of migrations for PostgreSQL and SQLite."""
    for dialect in ("postgresql", "sqlite"):
        (folder / str(steps) / dialect).mkdir(parents=True)
        for number in range(1, steps + 1):
            (folder / str(steps) / dialect / f"{number:04}_step.sql").write_text("SELECT 1;")
    return folder / str(steps)


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_request_in_flight_at_a_reload_delays_no_job(dialect: str, tmp_path: Path) -> None:
    """The new version's job runs on time, on a store with a newer schema, while the old version still answers."""
    holds, first, second = HoldsRequest(), Runs(), Runs()

    def version(runs: Runs, number: int) -> Plugin:
        store = Store(name="kept", migrations=migrations_of(tmp_path, number), tables=())
        return Plugin(
            register_stores=lambda context: [store],
            register_jobs=lambda context: [Job(name="beat", run=runs, every=1)],
            register_routes=lambda context: [group_of(holds)],
        )

    installed = [plugin_distribution("a", version(first, 1))]
    with (
        store_settings(dialect) as settings,
        running_host(distributions=installed, settings={**settings, "grace_time": 300.0}, now=MORNING) as host,
        host.client() as client,
        ThreadPoolExecutor() as threads,
    ):
        host.advance(1)
        wait_until(lambda: len(first.due) == 1)
        answer = threads.submit(client.get, "/say")
        assert holds.begun.wait(60)
        installed[0] = plugin_distribution("a", version(second, 2), version="2.0")
        reload = threads.submit(host.host.reload)
        try:
            wait_until(lambda: host.host.generation.number == 2)
            host.advance(1)
            wait_until(lambda: len(second.due) == 1)
            assert not reload.done()
        finally:
            holds.go.set()
        assert reload.result(60).cut_off == ()
        assert answer.result(60).status_code == 200
    assert (len(first.due), len(second.due)) == (1, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "it is never due; give it every, cron or at_start"),
        *(({"every": each}, f"every {each} is no number of seconds from") for each in (0, 5e-324, 1e13)),
        ({"every": 1, "cron": "* * * * *"}, "it has every and cron; give it one of them"),
        ({"cron": "61 * * * *"}, "cron '61 * * * *': Bad minute"),
        ({"cron": "0 0 30 2 *"}, "cron '0 0 30 2 *': Bad day-of-month; it has five fields"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus' on this machine"),
        ({"every": 1, "run": lambda: None}, "run is called with (job_run), and takes ()"),
        ({"every": 1, "run": None}, "run must be Callable"),
        ({"every": 1, "name": "a b"}, "a name is made of"),
    ],
)
def test_a_job_that_cannot_run_is_refused(given: dict[str, Any], message: str) -> None:
    """The plugin fails, and the reason names the job and what to do."""
    plugin = with_jobs(Job(**{"name": "odd", "run": Runs(), **given}))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)]) as host:
        assert message in reason(host, "a")
        assert "register_jobs: job '" in reason(host, "a")


def test_a_job_that_waits_keeps_no_other_from_running() -> None:
    """A plugin's job may wait for messages for as long as it serves; its other jobs run meanwhile."""
    waits, runs = Holds(listens=True), Runs()
    plugin = with_jobs(Job(name="a", run=waits, at_start=True), Job(name="b", run=runs, every=60))
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)], now=MORNING) as host:
        host.advance(60)
        wait_until(lambda: len(runs.due) == 1)
        assert host.host.view.jobs[0].running_since is not None
