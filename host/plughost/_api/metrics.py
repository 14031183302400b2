"""Metrics of a plugin's own: counters, gauges and histograms, for whichever plugin shows metrics."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from plughost._api.errors import PluginError

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_SERIES: Final = 1000
"""So many combinations of labels a metric keeps; what comes beyond counts with `other` as each label."""

_name: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*").fullmatch
_TAKEN: Final = frozenset({"plugin", "le", "quantile", "job", "instance"})
"""Labels that every metric or histogram has, and those that Prometheus gives: it shows our `job` as `exported_job`."""

Kind = Literal["counter", "gauge", "histogram"]
M = TypeVar("M", bound="Metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """A metric of an active plugin, as a plugin that shows metrics gets it.

    Attributes:
        plugin: Whose it is.
        name: Its name within the plugin.
        kind: What it is.
        about: What it tells.
        labels: The names of its labels.
        bounds: Of a histogram, the upper bounds of its buckets; empty for others.
        series: By the values of the labels, what was counted: one number, or of a histogram how many were within each
            bound, how many there were in all, and their sum.
    """

    plugin: str
    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    series: Mapping[tuple[str, ...], tuple[float, ...]]


class Metric:
    """What the three kinds have in common; a plugin gets them of `PluginContext.metrics`."""

    kind: Kind

    def __init__(self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self.name: str = name
        self.about: str = about
        self.labels: tuple[str, ...] = tuple(labels)
        self.bounds: tuple[float, ...] = tuple(bounds)
        self._lock = threading.Lock()
        self._series: dict[tuple[str, ...], list[float]] = {}

    def view(self, plugin: str) -> MetricView:
        """Return it as others see it."""
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
            message = f"the metric {self.name} has the labels {self.labels}, and was given {tuple(labels)}"
            raise TypeError(message)
        return tuple(str(labels[name]) for name in self.labels)

    def _cell(self, key: tuple[str, ...], size: int = 1) -> list[float]:
        """Return what is counted for labels; with the lock."""
        cell = self._series.get(key)
        if cell is None:
            if len(self._series) >= MOST_SERIES:
                key = ("other",) * len(self.labels)
            cell = self._series.setdefault(key, [0.0] * size)
        return cell


class Counter(Metric):
    """Counts what only grows."""

    kind: Kind = "counter"

    def add(self, amount: float = 1, /, **labels: object) -> None:
        """Count.

        Args:
            amount: How much, never below 0.
            **labels: A value for each label. Never what clients may make up: each combination is kept.

        Raises:
            TypeError: The labels are not those that were declared.
            ValueError: The amount is below 0.
        """
        if amount < 0:
            message = f"the counter {self.name} only grows, and was to grow by {amount}; use a gauge"
            raise ValueError(message)
        key = self._key(labels)
        with self._lock:
            self._cell(key)[0] += amount


class Gauge(Metric):
    """Keeps a number that goes up and down."""

    kind: Kind = "gauge"

    def set(self, value: float, /, **labels: object) -> None:
        """Keep a number; arguments as of `Counter.add`."""
        key = self._key(labels)
        with self._lock:
            self._cell(key)[0] = value


class Histogram(Metric):
    """Counts how many values were within which bounds."""

    kind: Kind = "histogram"

    def observe(self, value: float, /, **labels: object) -> None:
        """Count a value, such as the seconds that something took; labels as of `Counter.add`."""
        key = self._key(labels)
        with self._lock:
            cell = self._cell(key, len(self.bounds) + 2)
            for number in range(bisect_left(self.bounds, value), len(self.bounds) + 1):
                cell[number] += 1
            cell[-1] += value


class Metrics:
    """Makes a plugin's metrics. They are shown for as long as the plugin serves, and go on where it is reused.

    To ask for one of the same name again, with the same arguments, returns the same one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, Metric] = {}

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        """Return a counter.

        Args:
            name: Lower-case words joined by `_`, such as `orders`. It is shown as `<plugin>_<name>_total`.
            about: One sentence on what it tells.
            labels: The names of its labels, beside `plugin`; not `job` and `instance`, which Prometheus gives itself.

        Raises:
            PluginError: The name can't be used, or is that of another metric of this plugin.
        """
        return self._make(Counter, name, about, labels, ())

    def gauge(self, name: str, about: str, labels: Sequence[str] = ()) -> Gauge:
        """Return a gauge; arguments and errors as of `counter`."""
        return self._make(Gauge, name, about, labels, ())

    def histogram(
        self, name: str, about: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        """Return a histogram; other arguments and errors as of `counter`.

        The bounds are the upper ones of its buckets, rising. By default they are for seconds, from 1 ms to 10 s.
        """
        return self._make(Histogram, name, about, labels, bounds)

    def views(self, plugin: str) -> tuple[MetricView, ...]:
        """Return what was made so far, for a plugin that shows it."""
        with self._lock:
            made = tuple(self._made.values())
        return tuple(each.view(plugin) for each in made)

    def _make(self, kind: Callable[..., M], name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> M:
        odd = [each for each in (name, *labels) if not _name(each)] + [each for each in labels if each in _TAKEN]
        if odd or list(bounds) != sorted(set(bounds)):
            cause = f"the metric {name!r} has {f'the name or label {odd[0]!r}' if odd else 'bounds that do not rise'}"
            rule = "names are lower-case words joined by _, and labels not plugin,"
            rule += " and not job, instance, le or quantile, which are Prometheus' own"
            raise PluginError(f"{cause}; {rule}")
        made: Any = kind(name, about, labels, bounds)
        with self._lock:
            known: Any = self._made.setdefault(name, made)
        if (type(known), known.labels, known.bounds) != (type(made), made.labels, made.bounds):
            raise PluginError(f"it makes the metric {name!r} twice, of another kind, labels or bounds")
        found: M = known
        return found
