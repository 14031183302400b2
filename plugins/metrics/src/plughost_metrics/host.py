"""Metrics of the host: its state at each scrape, and counters of its events."""

from __future__ import annotations

import collections
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from plughost_metrics.families import counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plughost import Event, HostView, PluginContext

M = TypeVar("M", Counter, Histogram)
COUNTED_EVENTS: Final = ("login", "reload")
"""The events that are counted."""

STORE_GAUGES: Final = {
    "connections_in_use": "Connections that operations use now; on SQLite, of those that read.",
    "connections_open": "Connections that are open.",
    "connections_at_most": "Connections that may be open.",
    "connection_waits": "Operations that had to wait for a connection, since the store opened.",
    "connection_wait_seconds": "Seconds that they waited.",
    "lock_waits": "Operations that waited for another that writes, since the store opened; on PostgreSQL in vain.",
    "lock_wait_seconds": "Seconds that they waited.",
}
STATES: Final = ("active", "disabled", "failed", "blocked")


class HostState(Collector):
    """The state of a host at the moment of a scrape."""

    def __init__(self, host: HostView) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the host's state."""
        host = self._host
        yield GaugeMetricFamily("plughost_generation", "Number of the generation that serves.", host.generation)
        states = collections.Counter(plugin.state for plugin in host.plugins)
        by_state = {(state,): states[state] for state in STATES}
        yield gauge("plughost_plugins", "Installed plugins, by state.", ("state",), by_state)
        versions = InfoMetricFamily("plughost_plugin", "Installed plugins.", labels=("plugin",))
        for plugin in host.plugins:
            versions.add_metric([plugin.name], {"version": plugin.version, "state": plugin.state})
        yield versions
        about = "Requests not answered to their end, by site."
        by_site = {(site,): count for site, count in host.in_flight.items()}
        yield gauge("plughost_site_requests_in_flight", about, ("site",), by_site)
        yield from self._loads()
        for name, about in STORE_GAUGES.items():
            # A store without this figure is not open.
            by_store = {store: figures[name] for store, figures in host.store_figures.items() if name in figures}
            yield gauge(f"plughost_store_{name}", about, ("plugin", "store"), by_store)
        yield from self._jobs()
        if (info := host.certificate()) is not None:
            seconds = (info.not_after - datetime.now(UTC)).total_seconds()
            about = "Seconds until the TLS certificate ends that is shown."
            yield GaugeMetricFamily("plughost_certificate_remaining_seconds", about, seconds)

    def _loads(self) -> Iterator[Metric]:
        """Yield what each plugin takes of the threads."""
        loads = {(plugin,): load for plugin, load in self._host.loads.items()}
        about = "Threads that a plugin holds: with slow requests, or with any where it has a store."
        yield gauge("plughost_threads_held", about, ("plugin",), {key: load.held for key, load in loads.items()})
        about = "Requests that wait since their plugin has its share."
        yield gauge("plughost_requests_queued", about, ("plugin",), {key: load.queued for key, load in loads.items()})
        about = "Requests that were answered 503 since too many waited."
        refused = {key: load.refused for key, load in loads.items()}
        yield counter("plughost_requests_refused", about, ("plugin",), refused)

    def _jobs(self) -> Iterator[Metric]:
        """Yield the results of each job on this host."""
        labels = ("plugin", "name")
        jobs = {(job.plugin, job.name): job for job in self._host.jobs}
        runs = {(*key, "ok"): job.runs for key, job in jobs.items()}
        runs |= {(*key, "failed"): job.failures for key, job in jobs.items()}
        yield counter("plughost_job_runs", "Runs of a job that ended.", (*labels, "outcome"), runs)
        about = "Times that a job was due and did not run, since it still ran or the host was late."
        yield counter("plughost_job_missed", about, labels, {key: job.missed for key, job in jobs.items()})
        about = "Seconds that the last run took."
        yield gauge("plughost_job_last_seconds", about, labels, {key: job.seconds for key, job in jobs.items()})
        running = {key: job.running_since is not None for key, job in jobs.items()}
        yield gauge("plughost_job_running", "Whether a job runs now.", labels, running)


class EventCounters:
    """Counts the events of a host, which keeps the counters. A counter with other labels needs another name."""

    def __init__(self, context: PluginContext[Any], registry: CollectorRegistry) -> None:
        def registered(kind: type[M], name: str, about: str, labels: Sequence[str] = ()) -> M:
            metric = context.keep(name, lambda: kind(name, about, labels, registry=None))
            registry.register(metric)
            return metric

        self._reloads = registered(
            Counter, "plughost_reloads", "Reloads, by result: swapped, or failed with nothing changed.", ["result"]
        )
        for result in ("swapped", "failed"):
            self._reloads.labels(result)  # Prometheus sees the first one only as an increase from an earlier 0
        self._reload_seconds = registered(Histogram, "plughost_reload_duration_seconds", "Seconds that a reload took.")
        self._logins = registered(
            Counter, "plughost_logins", "Attempts to log in, by plugin and outcome.", ["plugin", "outcome"]
        )

    def __call__(self, event: Event) -> None:
        """Count one of `COUNTED_EVENTS`."""
        fields = event.fields
        if event.name == "login":
            self._logins.labels(event.plugin or "", fields["outcome"]).inc()
        else:
            self._reloads.labels("swapped" if fields["swapped"] else "failed").inc()
            self._reload_seconds.observe(fields["seconds"]["total"])
