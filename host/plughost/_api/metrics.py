"""A plugin's own metrics: counters, gauges and histograms, for any plugin that shows metrics."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from plughost._api.errors import PluginError

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MAX_SERIES: Final = 1000
"""How many combinations of labels a metric keeps. Further ones count with `other` as each label."""

_name: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*").fullmatch
_RESERVED_LABELS: Final = frozenset({"plugin", "le", "quantile", "job", "instance"})
"""Labels that each metric or histogram has, and those that Prometheus adds: it shows our `job` as `exported_job`."""

Kind = Literal["counter", "gauge", "histogram"]
M = TypeVar("M", bound="Metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A metric of an active plugin, as a plugin that shows metrics gets it.

    Attributes:
        plugin: Its plugin.
        name: Its name within the plugin.
        kind: Its type.
        about: What it measures.
        labels: The names of its labels.
        bounds: The upper bounds of a histogram's buckets. Empty for others.
        series: Label values to what was counted: one number, or for a histogram the count within each bound, the total
            count, and the sum.
    """

    plugin: str
    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    series: Mapping[tuple[str, ...], tuple[float, ...]]


def _shown(text: str) -> str:
    """Return a text as UTF-8 can have it: what can't be written would hide the metrics of the whole host."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class Metric:
    """The base of the three kinds. A plugin gets them from `PluginContext.metrics`."""

    kind: Kind

    def __init__(self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self.name: str = name
        self.about: str = _shown(about)
        self.labels: tuple[str, ...] = tuple(labels)
        self.bounds: tuple[float, ...] = tuple(bounds)
        self._lock = threading.Lock()
        self._series: dict[tuple[str, ...], list[float]] = {}

    def view(self, plugin: str) -> MetricView:
        """Return a snapshot of the metric."""
        with self._lock:
            series = {key: tuple(cell) for key, cell in self._series.items()}
        return MetricView(
            plugin=plugin,
            name=self.name,
            kind=self.kind,
            about=self.about,
            labels=self.labels,
            bounds=self.bounds,
            series=series,
        )

    def _key(self, labels: Mapping[str, object]) -> tuple[str, ...]:
        if labels.keys() != set(self.labels):
            raise TypeError(f"the metric {self.name} has the labels {self.labels}, and was given {tuple(labels)}")
        return tuple(_shown(str(labels[name])) for name in self.labels)

    def _cell(self, key: tuple[str, ...], size: int = 1) -> list[float]:
        """Return the numbers for some label values. Call with the lock held."""
        cell = self._series.get(key)
        if cell is None:
            if len(self._series) >= MAX_SERIES:
                key = ("other",) * len(self.labels)
            cell = self._series.setdefault(key, [0.0] * size)
        return cell


class Counter(Metric):
    """A number that only grows."""

    kind: Kind = "counter"

    def add(self, amount: float = 1, /, **labels: object) -> None:
        """Increase the counter.

        Args:
            amount: How much, never below 0.
            **labels: A value for each label. Never values that clients can invent: each combination is kept.

        Raises:
            TypeError: The labels differ from the declared ones.
            ValueError: The amount is below 0, or no number.
        """
        amount = float(amount)
        if not amount >= 0:  # nor NaN, from which no counter recovers
            raise ValueError(f"the counter {self.name} only grows, and was to grow by {amount}; use a gauge")
        key = self._key(labels)
        with self._lock:
            self._cell(key)[0] += amount


class Gauge(Metric):
    """A number that goes up and down."""

    kind: Kind = "gauge"

    def set(self, value: float, /, **labels: object) -> None:
        """Set the value. Arguments as for `Counter.add`."""
        value = float(value)
        key = self._key(labels)
        with self._lock:
            self._cell(key)[0] = value


class Histogram(Metric):
    """Counts values by buckets."""

    kind: Kind = "histogram"

    def observe(self, value: float, /, **labels: object) -> None:
        """Count a value, such as a duration in seconds. Labels as for `Counter.add`."""
        value = float(value)
        key = self._key(labels)
        with self._lock:
            cell = self._cell(key, len(self.bounds) + 2)
            for bucket in range(bisect_left(self.bounds, value), len(self.bounds) + 1):
                cell[bucket] += 1
            cell[-1] += value


class Metrics:
    """Creates a plugin's metrics. They are shown while the plugin serves, and keep counting if it is reused.

    The same name and arguments return the same metric again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        """Return a counter.

        Args:
            name: Lower-case words joined by `_`, such as `orders`. It is shown as `<plugin>_<name>_total`.
            about: One sentence on what it measures.
            labels: The names of its labels, besides `plugin`. Not `job` and `instance`, which Prometheus adds itself.

        Raises:
            PluginError: The name is invalid, or another metric of this plugin has it.
        """
        return self._make(Counter, name, about, labels, ())

    def gauge(self, name: str, about: str, labels: Sequence[str] = ()) -> Gauge:
        """Return a gauge. Arguments and errors as for `counter`."""
        return self._make(Gauge, name, about, labels, ())

    def histogram(
        self, name: str, about: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        """Return a histogram. Other arguments and errors as for `counter`.

        `bounds` are the upper bounds of its buckets, rising. By default they are for seconds, from 1 ms to 10 s.
        """
        return self._make(Histogram, name, about, labels, bounds)

    def views(self, plugin: str) -> tuple[MetricView, ...]:
        """Return snapshots of all metrics so far, for a plugin that shows them."""
        with self._lock:
            metrics = tuple(self._metrics.values())
        return tuple(each.view(plugin) for each in metrics)

    def _make(self, kind: Callable[..., M], name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> M:
        wrong = [each for each in (name, *labels) if not _name(each)]
        wrong += [each for each in labels if each in _RESERVED_LABELS]
        if wrong or list(bounds) != sorted(set(bounds)):
            fault = f"the name or label {wrong[0]!r}" if wrong else "bounds that do not rise"
            raise PluginError(
                f"the metric {name!r} has {fault}; names are lower-case words joined by _, and labels not plugin, and "
                "not job, instance, le or quantile, which are Prometheus' own"
            )
        new: Any = kind(name, about, labels, bounds)
        with self._lock:
            existing: Any = self._metrics.setdefault(name, new)
        if (type(existing), existing.labels, existing.bounds) != (type(new), new.labels, new.bounds):
            raise PluginError(f"it makes the metric {name!r} twice, of another kind, labels or bounds")
        metric: M = existing
        return metric
