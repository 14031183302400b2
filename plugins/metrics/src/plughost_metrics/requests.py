"""Requests: counted and timed by plugin, method, route and status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plughost_metrics.times import Figures, Times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plughost import HostView, RequestKind

NAME: Final = "plughost_request_duration_seconds"
_ABOUT: Final = "Seconds until the response to a request began."
_METHODS: Final = frozenset(falcon.COMBINED_METHODS)


class RequestTimes(Collector):
    """Times requests as an observer, and tells of them as a collector of prometheus-client.

    The route is the template of the route, never the path that was asked for, and an unregistered method is `other`:
    nobody can make series by asking for what is not there.
    """

    def __init__(self, figures: Figures, host: HostView) -> None:
        """Go on from what was counted so far."""
        self._times = Times(figures, NAME, _ABOUT, ("plugin", "method", "route", "status"))
        self._host = host

    def observe(self, times: Mapping[RequestKind, Sequence[float]]) -> None:
        """Count requests, and how long they took until their response began."""
        for (plugin, route, method, code), seconds in times.items():
            self._times.add((plugin, method if method in _METHODS else "other", route, str(code)), seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram of the requests, whose count is how many there were, and those in flight."""
        self._host.catch_up()
        yield self._times.family()
        gauge = GaugeMetricFamily(
            "plughost_requests_in_flight", "Requests not answered to their end, by plugin.", labels=("plugin",)
        )
        for plugin, count in self._host.in_flight_by_plugin.items():
            gauge.add_metric([plugin], count)
        yield gauge
