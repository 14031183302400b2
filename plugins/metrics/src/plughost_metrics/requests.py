"""Request metrics by plugin, method, route and status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plughost_metrics.times import HistogramState, Times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plughost import HostView, RequestKind

NAME: Final = "plughost_request_duration_seconds"
_DOCUMENTATION: Final = "Seconds until the response to a request began."
_METHODS: Final = frozenset(falcon.COMBINED_METHODS)


class RequestTimes(Collector):
    """Observes the times of requests, and collects them for prometheus-client.

    The label `route` is the route's template, never the requested path, and an unregistered method is `other`, so that
    clients can't create time series.
    """

    def __init__(self, state: HistogramState, host: HostView) -> None:
        """Continue the histogram of this host."""
        self._times = Times(state, NAME, _DOCUMENTATION, ("plugin", "method", "route", "status"))
        self._host = host

    def observe(self, times: Mapping[RequestKind, Sequence[float]]) -> None:
        """Count requests, with the seconds until their response began."""
        for (plugin, route, method, code), seconds in times.items():
            self._times.add((plugin, method if method in _METHODS else "other", route, str(code)), seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram of request times, and the requests in flight."""
        self._host.catch_up()
        yield self._times.family()
        gauge = GaugeMetricFamily(
            "plughost_requests_in_flight", "Requests not answered to their end, by plugin.", labels=("plugin",)
        )
        for plugin, count in self._host.in_flight_by_plugin.items():
            gauge.add_metric([plugin], count)
        yield gauge
