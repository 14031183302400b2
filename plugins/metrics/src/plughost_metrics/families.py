"""Metrics as prometheus-client writes them, and those that plugins declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plughost import HostView, MetricView

Labels = tuple[str, ...]
L = TypeVar("L", bound=Labels)


def counter(name: str, about: str, labels: Labels, series: Mapping[L, float]) -> Metric:
    """Return a counter with a number for each combination of labels."""
    return _filled(CounterMetricFamily(name, about, labels=labels), series)


def gauge(name: str, about: str, labels: Labels, series: Mapping[L, float]) -> Metric:
    """Return a gauge with a number for each combination of labels."""
    return _filled(GaugeMetricFamily(name, about, labels=labels), series)


def histogram(
    name: str, about: str, labels: Labels, bounds: Sequence[float], series: Mapping[Labels, Sequence[float]]
) -> Metric:
    """Return a histogram.

    Each series has the number of values up to each bound, their total number, and their sum.
    """
    family = HistogramMetricFamily(name, about, labels=labels)
    upper = (*map(str, bounds), "+Inf")
    for values, (*buckets, total) in series.items():
        family.add_metric(values, list(zip(upper, buckets, strict=True)), total)
    return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, series: Mapping[L, float]) -> Metric:
    for values, number in series.items():
        family.add_metric(values, number)
    return family


class PluginMetrics(Collector):
    """The metrics that active plugins declare, with the plugin's name in the metric's name and as a label."""

    def __init__(self, host: HostView) -> None:
        self._host = host
        _ = host.metrics  # the first access starts the counting

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of each plugin."""
        return map(_family, self._host.metrics)


def _family(view: MetricView) -> Metric:
    name, labels = f"{view.plugin.replace('-', '_')}_{view.name}", ("plugin", *view.labels)
    series = {(view.plugin, *values): numbers for values, numbers in view.series.items()}
    if view.kind == "histogram":
        return histogram(name, view.about, labels, view.bounds, series)
    make = counter if view.kind == "counter" else gauge
    return make(name, view.about, labels, {values: number for values, (number,) in series.items()})
