"""Requests: counted and timed by plugin, method, route and status."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import falcon
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plughost import HostView, PluginContext, RequestKind

LABELS: Final = ("plugin", "method", "route", "status")
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_UPPER: Final = (*map(str, BOUNDS), "+Inf")
_METHODS: Final = frozenset(falcon.COMBINED_METHODS)

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was counted so far: the part of `RequestTimes` that goes on when the plugin is made anew.

    Attributes:
        lock: Guards the cells.
        cells: By labels, how many requests took no longer than each bound, how many there were, and their seconds.
    """

    lock: threading.Lock
    cells: dict[Key, list[float]]

    @classmethod
    def kept_by(cls, context: PluginContext[Any]) -> Self:
        """Return those of a host; what it keeps is plain, since this class may be of another version tomorrow."""
        return cls(
            context.keep("lock", threading.Lock),
            context.keep(f"cells by labels, up to {BOUNDS}", dict),  # other buckets can't go on from these
        )


class RequestTimes(Collector):
    """Times requests as an observer, and tells of them as a collector of prometheus-client.

    The route is the template of the route, never the path that was asked for, and an unregistered method is `other`:
    nobody can make series by asking for what is not there.
    """

    def __init__(self, figures: Figures, host: HostView) -> None:
        """Go on from what was counted so far."""
        self._lock = figures.lock
        self._cells = figures.cells
        self._host = host

    def observe(self, times: Mapping[RequestKind, Sequence[float]]) -> None:
        """Count requests, and how long they took until their response began."""
        with self._lock:
            for (plugin, route, method, code), seconds in times.items():
                key = (plugin, method if method in _METHODS else "other", route, str(code))
                cell = self._cells.setdefault(key, [0.0] * (len(BOUNDS) + 2))
                ordered = sorted(seconds)
                for number, bound in enumerate(BOUNDS):
                    cell[number] += bisect_right(ordered, bound)
                cell[-2] += len(seconds)
                cell[-1] += sum(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram of the requests, whose count is how many there were, and those in flight."""
        self._host.catch_up()
        times = HistogramMetricFamily(
            "plughost_request_duration_seconds", "Seconds until the response to a request began.", labels=LABELS
        )
        with self._lock:
            cells = {labels: tuple(cell) for labels, cell in self._cells.items()}
        for labels, (*buckets, seconds) in cells.items():
            times.add_metric(labels, list(zip(_UPPER, buckets, strict=True)), seconds)
        yield times
        gauge = GaugeMetricFamily(
            "plughost_requests_in_flight", "Requests not answered to their end, by plugin.", labels=("plugin",)
        )
        for plugin, count in self._host.in_flight_by_plugin.items():
            gauge.add_metric([plugin], count)
        yield gauge
