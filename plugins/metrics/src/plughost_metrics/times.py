"""Histograms of seconds: what took how long, by labels."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plughost import Event, PluginContext

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_UPPER: Final = (*map(str, BOUNDS), "+Inf")
_MOST_PENDING: Final = 1000

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was counted so far: it goes on when the plugin is made anew.

    Attributes:
        lock: Guards the cells.
        cells: By labels, how many things took no longer than each bound, how many there were, and their seconds.
    """

    lock: threading.Lock
    cells: dict[Labels, list[float]]

    @classmethod
    def kept_by(cls, context: PluginContext[Any], metric: str) -> Self:
        """Return those of a host; what it keeps is plain, since this class may be of another version tomorrow."""
        return cls(
            context.keep(f"lock of {metric}", threading.Lock),
            context.keep(f"{metric} by labels, up to {BOUNDS}", dict),  # other buckets can't go on from these
        )


class Times:
    """A histogram of seconds, made of many at a time.

    Args:
        figures: What was counted so far.
        name: The metric's name.
        about: What it counts.
        labels: The names of its labels.
    """

    def __init__(self, figures: Figures, name: str, about: str, labels: Sequence[str]) -> None:
        """Go on from what was counted so far."""
        self._lock, self._cells = figures.lock, figures.cells
        self._named = name, about, None, None, labels

    def add(self, labels: Labels, seconds: Sequence[float]) -> None:
        """Count some of the same labels."""
        ordered = sorted(seconds)
        with self._lock:
            cell = self._cells.setdefault(labels, [0.0] * (len(BOUNDS) + 2))
            for number, bound in enumerate(BOUNDS):
                cell[number] += bisect_right(ordered, bound)
            cell[-2] += len(ordered)
            cell[-1] += sum(ordered)

    def family(self) -> Metric:
        """Return the histogram; its count is how many there were."""
        family = HistogramMetricFamily(*self._named)
        with self._lock:
            cells = {labels: tuple(cell) for labels, cell in self._cells.items()}
        for labels, (*buckets, seconds) in cells.items():
            family.add_metric(labels, list(zip(_UPPER, buckets, strict=True)), seconds)
        return family


class StoreTimes(Collector):
    """How long the operations of stores took, and how long they waited.

    Each is only noted when it happens, and counted with others: at the next scrape, or once so many are pending.
    """

    def __init__(self, context: PluginContext[Any]) -> None:
        """Go on from what was counted so far."""
        operations, waits = "plughost_store_operation_seconds", "plughost_store_wait_seconds"
        self._operations = Times(
            Figures.kept_by(context, operations),
            operations,
            "Seconds that an operation of a store took, waiting included.",
            ("store", "kind", "outcome"),
        )
        self._waits = Times(
            Figures.kept_by(context, waits),
            waits,
            "Seconds that an operation of a store waited for others or for a connection, where it had to.",
            ("store",),
        )
        self._pending: dict[Labels, deque[tuple[float, float]]] = context.keep("pending operations of stores", dict)

    def __call__(self, event: Event) -> None:
        """Note an operation."""
        fields = event.fields
        labels = fields["store"], fields["kind"], fields["outcome"]
        pending = self._pending.get(labels)
        if pending is None:
            pending = self._pending.setdefault(labels, deque())
        pending.append((fields["seconds"], fields.get("waited", 0.0)))
        if len(pending) >= _MOST_PENDING:
            self._count(labels, pending)

    def _count(self, labels: Labels, pending: deque[tuple[float, float]]) -> None:
        noted: list[tuple[float, float]] = []
        with suppress(IndexError):  # another thread counts the others
            while len(noted) < _MOST_PENDING:
                noted.append(pending.popleft())
        self._operations.add(labels, [seconds for seconds, _ in noted])
        if waits := [waited for _, waited in noted if waited]:
            self._waits.add(labels[:1], waits)

    def collect(self) -> Iterator[Metric]:
        """Yield both histograms."""
        for labels, pending in tuple(self._pending.items()):
            self._count(labels, pending)
        yield from (self._operations.family(), self._waits.family())
