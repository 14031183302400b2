"""Metrics of the host: its state at each scrape, and counters of its events."""

from __future__ import annotations

import collections
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

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
        yield GaugeMetricFamily("plughost_generation", "Number of the generation that serves.", self._host.generation)
        yield self._plugins()
        yield self._versions()
        in_flight = GaugeMetricFamily(
            "plughost_site_requests_in_flight", "Requests not answered to their end, by site.", labels=("site",)
        )
        for site, count in self._host.in_flight.items():
            in_flight.add_metric([site], count)
        yield in_flight
        yield from self._loads()
        yield from self._stores()
        yield from self._jobs()
        yield from self._certificate()

    def _stores(self) -> Iterator[Metric]:
        """Yield the connection metrics of each store, counted since it opened."""
        labels = ("plugin", "store")
        for name, about in STORE_GAUGES.items():
            metric = GaugeMetricFamily(f"plughost_store_{name}", about, labels=labels)
            for store, figures in self._host.store_figures.items():
                if name in figures:  # the store is open
                    metric.add_metric(store, figures[name])
            yield metric

    def _jobs(self) -> Iterator[Metric]:
        """Yield the results of each job on this host."""
        labels = ("plugin", "name")
        runs = CounterMetricFamily("plughost_job_runs", "Runs of a job that ended.", labels=(*labels, "outcome"))
        missed = CounterMetricFamily(
            "plughost_job_missed", "Times that a job was due and did not run, since it still ran.", labels=labels
        )
        seconds = GaugeMetricFamily("plughost_job_last_seconds", "Seconds that the last run took.", labels=labels)
        running = GaugeMetricFamily("plughost_job_running", "Whether a job runs now.", labels=labels)
        for job in self._host.jobs:
            key = [job.plugin, job.name]
            runs.add_metric([*key, "ok"], job.runs)
            runs.add_metric([*key, "failed"], job.failures)
            missed.add_metric(key, job.missed)
            seconds.add_metric(key, job.seconds)
            running.add_metric(key, job.running_since is not None)
        yield from (runs, missed, seconds, running)

    def _plugins(self) -> Metric:
        counted = collections.Counter(plugin.state for plugin in self._host.plugins)
        metric = GaugeMetricFamily("plughost_plugins", "Installed plugins, by state.", labels=("state",))
        for state in STATES:
            metric.add_metric([state], counted[state])
        return metric

    def _versions(self) -> Metric:
        metric = InfoMetricFamily("plughost_plugin", "Installed plugins.", labels=("plugin",))
        for plugin in self._host.plugins:
            metric.add_metric([plugin.name], {"version": plugin.version, "state": plugin.state})
        return metric

    def _loads(self) -> Iterator[Metric]:
        held = GaugeMetricFamily(
            "plughost_threads_held",
            "Threads that a plugin holds: with slow requests, or with any where it has a store.",
            labels=("plugin",),
        )
        queued = GaugeMetricFamily(
            "plughost_requests_queued", "Requests that wait since their plugin has its share.", labels=("plugin",)
        )
        refused = CounterMetricFamily(
            "plughost_requests_refused", "Requests that were answered 503 since too many waited.", labels=("plugin",)
        )
        for plugin, load in self._host.loads.items():
            held.add_metric([plugin], load.held)
            queued.add_metric([plugin], load.queued)
            refused.add_metric([plugin], load.refused)
        yield from (held, queued, refused)

    def _certificate(self) -> Iterator[Metric]:
        info = self._host.certificate()
        if info is not None:
            seconds = (info.not_after - datetime.now(UTC)).total_seconds()
            description = "Seconds until the TLS certificate ends that is shown."
            yield GaugeMetricFamily("plughost_certificate_remaining_seconds", description, seconds)


class EventCounters:
    """Counts the events of a host."""

    def __init__(self, context: PluginContext[Any], registry: CollectorRegistry) -> None:
        """Continue the counters of this host, and register them.

        Args:
            context: Keeps the counters while the host runs. A counter with other labels needs another name.
            registry: The registry that is scraped.
        """

        def registered(kind: type[M], name: str, about: str, labels: Sequence[str] = ()) -> M:
            metric = context.keep(name, lambda: kind(name, about, labels, registry=None))
            registry.register(metric)
            return metric

        self._reloads = registered(
            Counter, "plughost_reloads", "Reloads, by result: swapped, or failed with nothing changed.", ["result"]
        )
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
