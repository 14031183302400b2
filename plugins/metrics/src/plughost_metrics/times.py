"""Histograms of durations in seconds: of requests and of store operations."""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import falcon
from prometheus_client.registry import Collector

from plughost_metrics.families import gauge, histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from plughost import Event, PluginContext, RequestKind

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS: Final = frozenset(falcon.COMBINED_METHODS)

Labels = tuple[str, ...]


class Times:
    """A histogram, which adds many durations at a time.

    The host keeps its numbers across reloads, in plain types because a reload can change this class: by labels, how
    many durations fell into each bucket, and their sum.
    """

    def __init__(self, context: PluginContext[Any], name: str, about: str, labels: Labels) -> None:
        self._names = name, about, labels
        self._lock = context.keep(f"lock of {name}", threading.Lock)
        kept = f"{name} in buckets up to {BOUNDS}"  # other buckets need new numbers
        self._cells: dict[Labels, list[float]] = context.keep(kept, dict)

    def add(self, labels: Labels, seconds: Sequence[float]) -> None:
        """Add durations with the same labels."""
        with self._lock:
            cell = self._cells.get(labels) or self._cells.setdefault(labels, [0.0] * (len(BOUNDS) + 2))
            for duration in seconds:
                cell[bisect_left(BOUNDS, duration)] += 1
            cell[-1] += sum(seconds)

    def family(self) -> Metric:
        """Return the histogram for a scrape."""
        with self._lock:
            series = {labels: (*accumulate(cell[:-1]), cell[-1]) for labels, cell in self._cells.items()}
        return histogram(*self._names, BOUNDS, series)


class RequestTimes(Collector):
    """The times of requests by plugin, method, route and status.

    The label `route` is the route's template, never the requested path, and an unregistered method is `other`, so that
    clients can't create time series.
    """

    def __init__(self, context: PluginContext[Any]) -> None:
        about = "Seconds until the response to a request began."
        labels = ("plugin", "method", "route", "status")
        self._times = Times(context, "plughost_request_duration_seconds", about, labels)
        self._host = context.host

    def observe(self, times: Mapping[RequestKind, Sequence[float]]) -> None:
        """Count requests, with the seconds until their response began."""
        for (plugin, route, method, code), seconds in times.items():
            self._times.add((plugin, method if method in _METHODS else "other", route, str(code)), seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram of request times, and the requests in flight."""
        self._host.catch_up()
        yield self._times.family()
        about = "Requests not answered to their end, by plugin."
        in_flight = {(plugin,): count for plugin, count in self._host.in_flight_by_plugin.items()}
        yield gauge("plughost_requests_in_flight", about, ("plugin",), in_flight)


class StoreTimes(Collector):
    """The durations and waits of store operations."""

    def __init__(self, context: PluginContext[Any]) -> None:
        about = "Seconds that an operation of a store took, waiting included."
        labels = ("store", "kind", "outcome")
        self._operations = Times(context, "plughost_store_operation_seconds", about, labels)
        about = "Seconds that an operation of a store waited for others or for a connection, where it had to."
        self._waits = Times(context, "plughost_store_wait_seconds", about, ("store",))

    def __call__(self, event: Event) -> None:
        """Count an operation."""
        fields = event.fields
        self._operations.add((fields["store"], fields["kind"], fields["outcome"]), (fields["seconds"],))
        if waited := fields.get("waited"):
            self._waits.add((fields["store"],), (waited,))

    def collect(self) -> Iterator[Metric]:
        """Yield both histograms."""
        yield from (self._operations.family(), self._waits.family())
