"""Part of the conformance suite: a plugin's declarations are complete, and it owns what it declares and makes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import chain, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost.testing._hosts import RunningHost, running_host
from plughost.testing._operations import Suite

if TYPE_CHECKING:
    from plughost import HostView, MetricView, Operation
    from plughost._plugins.registry import Registry

_TABLES: Final = {
    # Without virtual tables, such as FTS5's, and those that SQLite makes for them.
    "sqlite": """
        SELECT name FROM sqlite_master AS made WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'
        AND NOT EXISTS (
            SELECT 1 FROM sqlite_master AS virtual WHERE virtual.sql LIKE 'CREATE VIRTUAL TABLE%'
            AND (made.name = virtual.name OR made.name LIKE replace(virtual.name, '_', '~_') || '~_%' ESCAPE '~')
        )
    """,
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
_HOST_PREFIX: Final = "plughost_"  # of the host's own tables
_PROMETHEUS_SUFFIXES: Final = {
    "counter": ("", "_total"),
    "gauge": ("",),
    "histogram": ("", "_bucket", "_count", "_sum"),
}


class DeclarationTests(Suite):
    """Tests of declarations, and of conflicts with all other installed plugins."""

    def test_every_operation_is_documented(self, host: RunningHost) -> None:
        """The description tells the purpose of each operation, its parameters, and its successful responses."""
        missing = [
            f"{method} {group.prefix}{route.path} {fault}"
            for view in host.host.view.sites.values()
            for plugin, group in view.groups
            if plugin == self.plugin and group.described
            for route in group.routes
            for method, operation in route.operations.items()
            for fault in _undocumented(operation)
        ]
        assert not missing, f"{self.plugin}: {'; '.join(missing)}"

    def test_it_declares_the_tables_that_it_makes(self, host: RunningHost) -> None:
        """A store declares each table it makes: others outlive a purge, and may conflict with another plugin's."""
        generation = host.host.generation
        stores = list(generation.stores.values())
        declared = {table for store in stores for table in store.declared.tables}
        for store in (each for each in stores if each.plugin == self.plugin):
            with store.database.administer() as db:
                made = {name for (name,) in db.rows(_TABLES[store.dialect]) if not name.startswith(_HOST_PREFIX)}
            undeclared = ", ".join(sorted(made - declared))
            assert not undeclared, (
                f"the store {store.name} makes the table {undeclared}, which it doesn't declare: add it to `tables`"
            )
            unmade = ", ".join(sorted(set(store.declared.tables) - made))
            assert not unmade, (
                f"the store {store.name} declares the table {unmade}, which it doesn't make: remove it from `tables`"
            )

    def test_it_declares_only_what_it_owns(self) -> None:
        """Its settings, stores, tables, prefixes, names and metrics are neither the host's nor another plugin's."""
        with running_host(settings={"stores": {}, **self.settings}) as host:
            faults = [*_claims(self.plugin, host.host.generation.registry)]
            faults += [
                fault for check in (_tables, _prefixes, _metrics) for fault in check(self.plugin, host.host.view)
            ]
        assert not faults, f"{self.plugin} declares what it doesn't own: {'; '.join(faults)}"

    def test_it_says_that_it_is_typed(self) -> None:
        """Importers of the plugin get its types: its package has the file `py.typed` (PEP 561)."""
        spec = importlib.util.find_spec(self.package)
        folders = [Path(each) for each in (spec.submodule_search_locations if spec else None) or ()]
        typed = not folders or any((folder / "py.typed").is_file() for folder in folders)
        assert typed, (
            f"the package {self.package} has no file py.typed: add an empty one, and name it in the package data"
        )


def _undocumented(operation: Operation) -> Iterator[str]:
    """Yield what an operation's documentation lacks, and what to do."""
    if not operation.summary.strip():
        yield "has no summary: say in a line what it does"
    for parameter in operation.parameters:
        if not parameter.description.strip():
            yield f"doesn't say what its parameter {parameter.name} is: give it a description"
    if not any(status < 400 for status in operation.responses):
        yield "doesn't say what it answers: declare the response of a request that is right"
    for status, response in operation.responses.items():
        if not response.description.strip():
            yield f"doesn't say what its response {status} means: give it a description"
        has_body = status < 300 and status not in {204, 205} and response.media_types
        if has_body and response.model is None and response.schema is None:
            yield f"doesn't say what is in its response {status}: give it a model, or media_types=() if nothing is"


def _claims(plugin: str, registry: Registry) -> Iterator[str]:
    """Yield conflicts for which the host refuses this plugin, or another one because of it."""
    (own,) = (entry for entry in registry.records if entry.name == plugin)
    if own.failure is not None:
        how = ": give it a name of its own" if own.failure.stage == "conflict" else ""
        yield f"{own.failure.cause}{how}"
    for entry in registry.records:
        failure = entry.failure
        if failure is not None and failure.stage == "conflict" and own.installed.label in failure.cause:
            yield f"{failure.cause}, so {entry.installed.label} loses what is its own: choose another name"


def _tables(plugin: str, view: HostView) -> Iterator[str]:
    """Yield tables that the host makes for itself."""
    (own,) = (each for each in view.plugins if each.name == plugin)
    for table in chain.from_iterable(store.tables for store in own.declared.stores):
        if table.lower().startswith(_HOST_PREFIX):
            yield f"the table {table} is the host's: remove it from `tables`, or a purge drops it"


def _prefixes(plugin: str, view: HostView) -> Iterator[str]:
    """Yield prefixes below a prefix of another plugin."""
    for site in view.sites.values():
        for (owner, group), (other, above) in permutations(site.groups, 2):
            if owner == plugin != other and group.prefix.startswith(f"{above.prefix}/"):
                yield f"the prefix {group.prefix} is below {above.prefix} of {other}: choose one beside it"


def _metrics(plugin: str, view: HostView) -> Iterator[str]:
    """Yield metrics that Prometheus shows under another metric's name."""
    for metric, other in permutations(view.metrics, 2):
        if metric.plugin == plugin and (both := _series(metric) & _series(other)):
            whose = f"{other.name} of {other.plugin}"
            yield f"the metric {metric.name} is shown as {min(both)}, as {whose} is: give it another name"


def _series(metric: MetricView) -> set[str]:
    """Return the names that Prometheus sees of a metric."""
    name = f"{metric.plugin.replace('-', '_').replace('.', '_')}_{metric.name}"
    return {name + ending for ending in _PROMETHEUS_SUFFIXES[metric.kind]}
