"""Metrics of plugins' own: what they count, what they refuse, and that nothing is counted for nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.host.plugins import Plugin, Says, group_of

from plughost import Metrics, PluginError
from plughost.testing import plugin_distribution, running_host


def test_nothing_is_counted_until_somebody_asks() -> None:
    """Where no plugin shows metrics, counters cost no memory; from the first look on they count."""
    made: list[Any] = []
    plugin = Plugin(
        register_routes=lambda context: [group_of(Says("hello"))],
        started=lambda context: made.append(context.metrics.counter("seen", "What was seen.")),
    )
    with running_host(["a"], distributions=[plugin_distribution("a", plugin)]) as host:
        made[0].add()
        assert [view.series for view in host.host.view.metrics] == [{}]
        made[0].add(2)
        assert [(view.plugin, view.name, view.series) for view in host.host.view.metrics] == [
            ("a", "seen", {(): (2.0,)})
        ]


def test_series_are_bounded() -> None:
    """What comes after a thousand combinations of labels is counted as `other`."""
    metrics = Metrics()
    seen = metrics.counter("seen", "What was seen.", ["name"])
    for number in range(1010):
        seen.add(name=number)
    (view,) = metrics.views("a")
    assert len(view.series) == 1001
    assert view.series["other",] == (10.0,)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda metrics: metrics.counter("Seen", ""), "name or label 'Seen'"),
        (lambda metrics: metrics.gauge("seen", "", ["plugin"]), "name or label 'plugin'"),
        (lambda metrics: metrics.counter("seen", "", ["job"]), "labels not plugin, and not job, instance"),
        (lambda metrics: metrics.counter("seen", "", ["instance"]), "name or label 'instance'"),
        (lambda metrics: metrics.histogram("seen", "", bounds=[2, 1]), "bounds that do not rise"),
        (lambda metrics: (metrics.counter("seen", ""), metrics.gauge("seen", "")), "makes the metric 'seen' twice"),
    ],
)
def test_a_metric_that_can_not_be_shown_is_refused(make: Callable[[Metrics], object], told: str) -> None:
    """The message names it."""
    with pytest.raises(PluginError, match=told):
        make(Metrics())


def test_wrong_labels_are_refused_though_nothing_is_counted() -> None:
    """A mistake shows in a test without a plugin that shows metrics, too."""
    seen = Metrics().counter("seen", "", ["name"])
    with pytest.raises(TypeError, match=r"has the labels \('name',\)"):
        seen.add(nmae="x")
    with pytest.raises(ValueError, match="only grows"):
        seen.add(-1, name="x")
