"""Metrics that plugins declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plughost import HostView, MetricView

_SIMPLE: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class PluginMetrics(Collector):
    """The metrics that active plugins declare, with the plugin's name in the metric's name and as a label."""

    def __init__(self, host: HostView) -> None:
        self._host = host
        _ = host.metrics  # the first access starts the counting

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of each plugin."""
        return map(_family, self._host.metrics)


def _family(view: MetricView) -> Metric:
    name = f"{view.plugin.replace('-', '_')}_{view.name}"
    labels = ("plugin", *view.labels)
    if view.kind == "histogram":
        histogram = HistogramMetricFamily(name, view.about, labels=labels)
        bounds = (*map(str, view.bounds), "+Inf")
        for values, (*buckets, total) in view.series.items():
            histogram.add_metric([view.plugin, *values], list(zip(bounds, buckets, strict=True)), total)
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily = _SIMPLE[view.kind](name, view.about, labels=labels)
    for values, (value,) in view.series.items():
        family.add_metric([view.plugin, *values], value)
    return family
