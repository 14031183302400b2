"""Conflicts: what two plugins claim at once, found before anything starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError
from typing import TYPE_CHECKING, Final

from plughost._plugins.discovery import sort_graph
from plughost._plugins.failures import Failure
from plughost._plugins.registry import PluginRecord, Registry, State
from plughost._plugins.validation import unroutable

if TYPE_CHECKING:
    from plughost._api.declarations import Middleware

_ANOTHER_PREFIX: Final = "Give one of the two another prefix, or another site by its setting site, or disable it."
_field = re.compile(r"\{[^{}]*\}")


def find_store_conflicts(registry: Registry) -> None:
    """Fail every plugin that claims a store or a table that an earlier one has. See `find_conflicts`."""
    _fail_later(registry, _stores, lambda _entry, _others: None)


def find_conflicts(registry: Registry) -> None:
    """Fail every plugin that claims what an earlier one has.

    The earlier one, in the registry's order, keeps what it claimed. The message names both.
    """
    _fail_later(registry, _mounts, _clash)


def order_middleware(registry: Registry) -> tuple[tuple[PluginRecord, Middleware], ...]:
    """Order all middleware by `before` and `after`, outermost first. A circle fails the plugins in it."""
    while True:
        declared = {each.name: (record, each) for record in registry.active() for each in record.declared.middleware}
        graph: dict[str, set[str]] = {name: set() for name in declared}
        for name, (_, each) in declared.items():
            graph[name].update(other for other in each.after if other in declared)
            for other in each.before:
                if other in declared:
                    graph[other].add(name)
        try:
            return tuple(declared[name] for name in sort_graph(graph))
        except CycleError as error:
            circle = error.args[1]
            record, _ = max((declared[name] for name in circle), key=lambda pair: registry.records.index(pair[0]))
            cause = f"middleware order is a circle: {' before '.join(circle)}"
            registry.fail(record, Failure("register_middleware", cause, "Disable one of these plugins."))


def _fail_later(
    registry: Registry,
    claims_of: Callable[[PluginRecord], Iterator[str]],
    clash: Callable[[PluginRecord, Iterable[PluginRecord]], Failure | None],
) -> None:
    owners: dict[str, PluginRecord] = {}
    for record in registry.active():
        if record.state is not State.ACTIVE:  # blocked meanwhile, by another's conflict
            continue
        claims = list(claims_of(record))
        # What is claimed twice says more than the routes that clash because of it.
        failure = _taken(claims, owners) or clash(record, owners.values())
        if failure is not None:
            registry.fail(record, failure)
        else:
            owners.update(dict.fromkeys(claims, record))


def _taken(claims: list[str], owners: dict[str, PluginRecord]) -> Failure | None:
    """Return why a plugin can't have what it claims. None where nothing of that is taken."""
    twice = next((claim for claim in claims if claims.count(claim) > 1), None)
    taken = next((claim for claim in claims if claim in owners), None)
    if twice is not None:
        return Failure("conflict", f"it claims the {twice} twice")
    if taken is None:
        return None
    cause = f"the {taken} belongs to {owners[taken].installed.label} already"
    if taken.startswith(("prefix ", "route ")):
        return Failure("conflict", cause, _ANOTHER_PREFIX)
    return Failure("conflict", cause, "Disable one of the two plugins.")


def _stores(record: PluginRecord) -> Iterator[str]:
    """Yield, as words for a message, what of a plugin's stores must be unique on the host."""
    for store in record.declared.stores:
        yield f"store {store.name}"
        yield from (f"table {table.lower()}" for table in store.tables)


def _mounts(record: PluginRecord) -> Iterator[str]:
    """Yield, as words for a message, what else of a plugin must be unique on the host."""
    declared = record.declared
    for group in declared.groups:
        site = record.site_of(group)
        yield f"prefix {group.prefix} on site {site}"
        for route in group.routes:
            yield f"route {_field.sub('{}', group.prefix + route.path)} on site {site}"
    yield from (f"middleware {each.name}" for each in declared.middleware)
    yield from (f"health check {each.name}" for each in declared.checks)
    yield from (f"job {record.name}/{each.name}" for each in declared.jobs)
    yield from (f"page {record.name}/{each.name}" for each in declared.pages)


def _clash(record: PluginRecord, others: Iterable[PluginRecord]) -> Failure | None:
    """Return how a plugin's routes can't stand beside others' on one site, by Falcon's own rules."""
    accepted = list(dict.fromkeys(others))
    problem = unroutable(record.declared.groups)
    if problem is not None:
        return Failure("conflict", problem)
    for group in record.declared.groups:
        site = record.site_of(group)
        beside = [
            (other, mounted)
            for other in accepted
            for mounted in other.declared.groups
            if other.site_of(mounted) == site and _meet(mounted.prefix, group.prefix)
        ]
        for other, mounted in beside:
            clash = unroutable([mounted, group])
            if clash is not None:
                cause = f"{clash}; the other route belongs to {other.installed.label}"
                return Failure("conflict", cause, _ANOTHER_PREFIX)
    return None


def _meet(one: str, other: str) -> bool:
    """Tell whether a prefix is below another. Routes below others part at a literal segment, where nothing clashes."""
    shorter, longer = sorted((f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"), key=len)
    return longer.startswith(shorter)
