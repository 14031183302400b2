"""Histograms of durations in seconds, by labels."""

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
_MAX_PENDING: Final = 1000

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistogramState:
    """The state of a histogram, which survives a reload of the plugin.

    Attributes:
        lock: Guards the cells.
        cells: By labels: the cumulative count of each bucket, the total count, and the sum in seconds.
    """

    lock: threading.Lock
    cells: dict[Labels, list[float]]

    @classmethod
    def of_host(cls, context: PluginContext[Any], metric: str) -> Self:
        """Return the state that a host keeps, in plain types because a reload can change this class."""
        return cls(
            context.keep(f"lock of {metric}", threading.Lock),
            context.keep(f"{metric} by labels, up to {BOUNDS}", dict),  # other buckets need a new state
        )


class Times:
    """A histogram of durations, which adds many at a time.

    Args:
        state: The state to continue.
        name: The metric's name.
        about: The metric's description.
        labels: The names of its labels.
    """

    def __init__(self, state: HistogramState, name: str, about: str, labels: Sequence[str]) -> None:
        self._lock, self._cells = state.lock, state.cells
        self._family_arguments = name, about, None, None, labels

    def add(self, labels: Labels, seconds: Sequence[float]) -> None:
        """Add durations with the same labels."""
        ordered = sorted(seconds)
        with self._lock:
            cell = self._cells.setdefault(labels, [0.0] * (len(BOUNDS) + 2))
            for number, bound in enumerate(BOUNDS):
                cell[number] += bisect_right(ordered, bound)
            cell[-2] += len(ordered)
            cell[-1] += sum(ordered)

    def family(self) -> Metric:
        """Return the histogram for a scrape."""
        family = HistogramMetricFamily(*self._family_arguments)
        with self._lock:
            cells = {labels: tuple(cell) for labels, cell in self._cells.items()}
        for labels, (*buckets, seconds) in cells.items():
            family.add_metric(labels, list(zip(_UPPER, buckets, strict=True)), seconds)
        return family


class StoreTimes(Collector):
    """The durations and waits of store operations.

    An event only appends to a queue. The queue is counted at the next scrape, or when `_MAX_PENDING` are pending.
    """

    def __init__(self, context: PluginContext[Any]) -> None:
        operations, waits = "plughost_store_operation_seconds", "plughost_store_wait_seconds"
        self._operations = Times(
            HistogramState.of_host(context, operations),
            operations,
            "Seconds that an operation of a store took, waiting included.",
            ("store", "kind", "outcome"),
        )
        self._waits = Times(
            HistogramState.of_host(context, waits),
            waits,
            "Seconds that an operation of a store waited for others or for a connection, where it had to.",
            ("store",),
        )
        self._pending: dict[Labels, deque[tuple[float, float]]] = context.keep("pending operations of stores", dict)

    def __call__(self, event: Event) -> None:
        """Queue an operation."""
        fields = event.fields
        labels = fields["store"], fields["kind"], fields["outcome"]
        pending = self._pending.get(labels)
        if pending is None:
            pending = self._pending.setdefault(labels, deque())
        pending.append((fields["seconds"], fields.get("waited", 0.0)))
        if len(pending) >= _MAX_PENDING:
            self._count(labels, pending)

    def _count(self, labels: Labels, pending: deque[tuple[float, float]]) -> None:
        batch: list[tuple[float, float]] = []
        with suppress(IndexError):  # another thread counts the others
            while len(batch) < _MAX_PENDING:
                batch.append(pending.popleft())
        self._operations.add(labels, [seconds for seconds, _ in batch])
        if waits := [waited for _, waited in batch if waited]:
            self._waits.add(labels[:1], waits)

    def collect(self) -> Iterator[Metric]:
        """Yield both histograms."""
        for labels, pending in tuple(self._pending.items()):
            self._count(labels, pending)
        yield from (self._operations.family(), self._waits.family())
