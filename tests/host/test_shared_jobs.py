"""Jobs of several hosts that share a PostgreSQL database."""

from __future__ import annotations

from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.host.plugins import Plugin
from tests.host.test_jobs import MORNING, Runs, job, with_jobs
from tests.stores.proxy import Proxy
from tests.waiting import wait_until

from plughost import Job, Store
from plughost.testing import fresh_postgresql, plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plughost import PluginContext
    from plughost.testing import RunningHost


def kept_store(folder: Path) -> Store:
    """Return a store that needs no table."""
    (folder / "postgresql").mkdir()
    (folder / "postgresql" / "0001_begin.sql").write_text("SELECT 1;")
    return Store(name="kept", migrations=folder, tables=())


def test_one_of_several_hosts_on_a_database_runs_a_job(tmp_path: Path) -> None:
    """The second host takes over when the first stops; a job that is meant for each host runs on both."""

    def plugin(runs: Runs, alone: Runs) -> Plugin:
        jobs = [Job(name="one", run=runs, every=1), Job(name="each", run=alone, every=1, each_host=True)]
        return with_jobs(*jobs, register_stores=lambda context: [store])

    store = kept_store(tmp_path)
    first, second, each = Runs(), Runs(), Runs()
    with fresh_postgresql() as url:
        settings = {"stores": {"url": url}}
        options: dict[str, Any] = {"settings": settings, "now": MORNING}
        with running_host(["a"], distributions=[plugin_distribution("a", plugin(second, each))], **options) as other:
            with running_host(["a"], distributions=[plugin_distribution("a", plugin(first, each))], **options) as host:
                host.advance(1)
                wait_until(lambda: len(first.due) == 1 and len(each.due) == 1)
                other.advance(1)
                wait_until(lambda: len(each.due) == 2)
                wait_until(lambda: [view.outcome for view in other.host.view.jobs] == ["ok", "elsewhere"])
            other.advance(1)
            wait_until(lambda: len(second.due) == 1)


def test_a_job_that_is_due_only_at_the_start_is_taken_over(tmp_path: Path) -> None:
    """When the host that ran it stops, the other one runs it within seconds, though its database was away meanwhile."""

    def plugin(runs: Runs) -> Plugin:
        return with_jobs(Job(name="one", run=runs, at_start=True), register_stores=lambda context: [store])

    store = kept_store(tmp_path)
    first, second = Runs(), Runs()
    with fresh_postgresql() as url, proxied(url) as (through, proxy):
        settings: list[dict[str, Any]] = [{"stores": {"url": url}}, {"stores": {"url": through, "patience": 0.5}}]
        installed = [[plugin_distribution("a", plugin(runs))] for runs in (first, second)]
        with running_host(["a"], distributions=installed[0], settings=settings[0], now=MORNING) as old:
            wait_until(lambda: len(first.due) == 1)
            with running_host(["a"], distributions=installed[1], settings=settings[1], now=MORNING) as new:
                wait_until(lambda: job(new).outcome == "elsewhere")
                proxy.cut()
                new.advance(5)
                wait_until(lambda: job(new).outcome == "failed")
                proxy.mend()
                old.host.stop()
                new.advance(5)
                wait_until(lambda: len(second.due) == 1)
                new.advance(5)
                wait_until(lambda: job(new).due is None)


def test_a_host_that_stands_by_emits_no_events(tmp_path: Path) -> None:
    """It asks again and again who runs a job that is due only at the start, and begins a run only to take over."""

    def plugin(runs: Runs) -> Plugin:
        def register_jobs(context: PluginContext[Any]) -> list[Job]:
            context.host.events.subscribe(lambda event: emitted[runs].append(event.name), "job_started", "job")
            return [Job(name="one", run=runs, at_start=True)]

        return Plugin(register_jobs=register_jobs, register_stores=lambda context: [store])

    store = kept_store(tmp_path)
    first, second = Runs(), Runs()
    emitted: dict[Runs, list[str]] = {first: [], second: []}
    with fresh_postgresql() as url:
        options: dict[str, Any] = {"settings": {"stores": {"url": url}}, "now": MORNING}
        with running_host(["a"], distributions=[plugin_distribution("a", plugin(first))], **options) as old:
            wait_until(lambda: emitted[first] == ["job_started", "job"])
            with running_host(["a"], distributions=[plugin_distribution("a", plugin(second))], **options) as new:
                for asked_again in range(3):
                    asked_at = MORNING + timedelta(seconds=5 * asked_again)
                    wait_until(lambda asked_at=asked_at: job(new).started_at == asked_at)  # type: ignore[misc] # mypy can't type a lambda's default
                    assert (job(new).outcome, emitted[second]) == ("elsewhere", [])
                    new.advance(5)
                old.host.stop()
                new.advance(5)
                wait_until(lambda: emitted[second] == ["job_started", "job"])


@contextmanager
def proxied(url: str) -> Iterator[tuple[str, Proxy]]:
    """Yield the URL of a proxy in front of a database, and the proxy."""
    parts = urlsplit(url)
    with closing(Proxy("127.0.0.1", parts.port or 5432)) as proxy:
        yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl(), proxy


@contextmanager
def job_on_a_proxy(folder: Path, patience: float, runs: Runs) -> Iterator[tuple[RunningHost, Proxy]]:
    """Run a host that has run a job once, and reaches its database through a proxy."""
    plugin = with_jobs(Job(name="one", run=runs, every=1), register_stores=lambda context: [store])
    store = kept_store(folder)
    with fresh_postgresql() as url, proxied(url) as (through, proxy):
        settings = {"stores": {"url": through, "patience": patience}}
        with running_host(
            ["a"], distributions=[plugin_distribution("a", plugin)], settings=settings, now=MORNING
        ) as host:
            host.advance(1)
            wait_until(lambda: len(runs.due) == 1)
            yield host, proxy


def test_a_job_waits_for_a_database_that_was_just_lost(tmp_path: Path) -> None:
    """A job that is due while the server restarts runs as soon as it is back, as requests do."""
    runs = Runs()
    with job_on_a_proxy(tmp_path, 30, runs) as (host, proxy):
        proxy.every = 5  # of the next connections, the others are refused
        proxy.drop()
        host.advance(1)
        wait_until(lambda: len(runs.due) == 2 or job(host).failures)
        assert job(host).failures == 0


def test_a_job_without_its_database_fails(tmp_path: Path) -> None:
    """The error says that the database can't be reached, and names no line of a library."""
    with job_on_a_proxy(tmp_path, 0.5, Runs()) as (host, proxy):
        proxy.cut()
        host.advance(1)
        wait_until(lambda: job(host).failures)
        assert job(host).error.startswith("Unreached: store kept: connection to server")


def test_a_run_that_ends_without_its_database_has_failed(tmp_path: Path) -> None:
    """If the host stops while a run waits for its database, no other host is said to have run it."""
    with job_on_a_proxy(tmp_path, 60, Runs()) as (host, proxy):
        proxy.cut()
        host.advance(1)
        wait_until(lambda: job(host).running_since)
        host.host.jobs.stop({"a"})
        wait_until(lambda: not job(host).running_since)
        assert job(host).outcome == "failed"
