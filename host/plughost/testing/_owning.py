"""Part of the conformance suite: nothing that a plugin declares belongs to another plugin, or to the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from plughost.testing._declaring import OF_THE_HOST
from plughost.testing._hosts import running_host
from plughost.testing._operations import Suite

if TYPE_CHECKING:
    from plughost import HostView, MetricView
    from plughost._plugins.registry import Registry

_SHOWN: Final = {"counter": ("", "_total"), "gauge": ("",), "histogram": ("", "_bucket", "_count", "_sum")}


class Owning(Suite):
    """A test of what a plugin declares beside all plugins that are installed."""

    def test_it_declares_only_what_it_owns(self) -> None:
        """Its settings, stores, tables, prefixes, names and metrics are neither the host's nor another plugin's."""
        with running_host(settings={"stores": {}, **self.settings}) as host:
            assert host.host.generation is not None, "a host that runs has a generation"
            faults = [*_claims(self.plugin, host.host.generation.registry)]
            faults += [fault for look in (_tables, _prefixes, _metrics) for fault in look(self.plugin, host.host.view)]
        assert not faults, f"{self.plugin} declares what it doesn't own: {'; '.join(faults)}"


def _claims(plugin: str, registry: Registry) -> Iterator[str]:
    """Yield what the host refuses, to this plugin or to another for the sake of this one."""
    (own,) = (entry for entry in registry.entries if entry.name == plugin)
    if own.failure is not None:
        how = ": give it a name of its own" if own.failure.stage == "conflict" else ""
        yield f"{own.failure.cause}{how}"
    for entry in registry.entries:
        failure = entry.failure
        if failure is not None and failure.stage == "conflict" and own.installed.label in failure.cause:
            yield f"{failure.cause}, so {entry.installed.label} loses what is its own: choose another name"


def _tables(plugin: str, view: HostView) -> Iterator[str]:
    """Yield tables that the host makes for itself."""
    tables = [
        each for one in view.plugins if one.name == plugin for store in one.declared.stores for each in store.tables
    ]
    for table in tables:
        if table.lower().startswith(OF_THE_HOST):
            yield f"the table {table} is the host's: remove it from `tables`, or a purge drops it"


def _prefixes(plugin: str, view: HostView) -> Iterator[str]:
    """Yield prefixes where another plugin answers for all that is below."""
    groups = [(site, owner, group.prefix) for site in view.sites for owner, group in view.sites[site].groups]
    own = [(site, prefix) for site, owner, prefix in groups if owner == plugin]
    for other_site, other, above in groups:
        for site, prefix in own:
            if other != plugin and site == other_site and prefix.startswith(f"{above}/"):
                yield f"the prefix {prefix} is below {above} of {other}: choose one beside it"


def _metrics(plugin: str, view: HostView) -> Iterator[str]:
    """Yield metrics that are shown by a name of another."""
    shown = [(metric, _series(metric)) for metric in view.metrics]
    for metric, series in shown:
        if metric.plugin != plugin:
            continue
        for other, others in shown:
            if other is not metric and (both := series & others):
                whose = f"{other.name} of {other.plugin}"
                yield f"the metric {metric.name} is shown as {min(both)}, as {whose} is: give it another name"


def _series(metric: MetricView) -> set[str]:
    """Return the names that Prometheus sees of a metric."""
    name = f"{metric.plugin.replace('-', '_').replace('.', '_')}_{metric.name}"
    return {name + ending for ending in _SHOWN[metric.kind]}
