"""Plugins' own metrics: what they count and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.host.plugins import Plugin, Says, group_of

from plughost import Metrics, PluginError
from plughost.testing import plugin_distribution, running_host


def test_a_metric_counts_from_its_creation() -> None:
    """It counts even in the hook that creates the resources, before anybody reads it."""
    made: list[Any] = []

    def register_routes(context: Any) -> Any:
        made.append(context.metrics.counter("seen", "What was seen."))
        made[0].add()
        return [group_of(Says("hello"))]

    plugin = plugin_distribution("a", Plugin(register_routes=register_routes))
    with running_host(["a"], distributions=[plugin]) as host:
        for number in (1.0, 2.0):
            assert [(view.plugin, view.name, view.series) for view in host.host.view.metrics] == [
                ("a", "seen", {(): (number,)})
            ]
            made[0].add()


def test_series_are_bounded() -> None:
    """After a thousand combinations of labels, further ones are counted as `other`."""
    metrics = Metrics()
    seen = metrics.counter("seen", "What was seen.", ["name"])
    for number in range(1010):
        seen.add(name=number)
    (view,) = metrics.views("a")
    assert len(view.series) == 1001
    assert view.series["other",] == (10.0,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda metrics: metrics.counter("Seen", ""), "name or label 'Seen'"),
        (lambda metrics: metrics.gauge("seen", "", ["plugin"]), "name or label 'plugin'"),
        (lambda metrics: metrics.counter("seen", "", ["job"]), "labels not plugin, and not job, instance"),
        (lambda metrics: metrics.counter("seen", "", ["instance"]), "name or label 'instance'"),
        (lambda metrics: metrics.histogram("seen", "", bounds=[2, 1]), "bounds that do not rise"),
        (lambda metrics: (metrics.counter("seen", ""), metrics.gauge("seen", "")), "makes the metric 'seen' twice"),
    ],
)
def test_a_metric_that_cannot_be_shown_is_refused(make: Callable[[Metrics], object], message: str) -> None:
    """The message names the metric."""
    with pytest.raises(PluginError, match=message):
        make(Metrics())


@pytest.mark.parametrize("value", ["many", None, 10**400])
def test_what_is_no_number_is_refused(value: Any) -> None:
    """The mistake appears where it is made, and doesn't hide the metrics of the whole host."""
    metrics = Metrics()
    uses = (metrics.counter("a", "").add, metrics.gauge("b", "").set, metrics.histogram("c", "").observe)
    for use in uses:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            use(value)
    with pytest.raises(ValueError, match="only grows"):
        uses[0](float("nan"))
    assert all(number == 0 for view in metrics.views("a") for cell in view.series.values() for number in cell)


def test_wrong_labels_are_refused() -> None:
    """The mistake appears in a test even without a plugin that shows metrics."""
    seen = Metrics().counter("seen", "", ["name"])
    with pytest.raises(TypeError, match=r"has the labels \('name',\)"):
        seen.add(nmae="x")
    with pytest.raises(ValueError, match="only grows"):
        seen.add(-1, name="x")
