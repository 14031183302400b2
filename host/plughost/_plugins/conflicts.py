"""Conflicts: names, routes and tables that two plugins claim, found before anything starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import CycleError
from typing import TYPE_CHECKING, Final

from plughost._plugins.environment import sort_graph
from plughost._plugins.failures import Failure
from plughost._plugins.registry import PluginRecord, Registry, State
from plughost._plugins.validation import routing_problem
from plughost.stores._config import variable_name

if TYPE_CHECKING:
    from plughost._api.declarations import Middleware

_PREFIX_ADVICE: Final = "Give one of the two another prefix, or another site by its setting site, or disable it."
_STORE_ADVICE: Final = "Let an author rename one of the two stores, or disable one of the two plugins."
_field = re.compile(r"\{[^{}]*\}")


def find_conflicts(registry: Registry) -> None:
    """Fail each plugin that claims a name, route or table of an earlier one.

    The earlier one, in the registry's order, keeps it. The message names both.
    """
    owners: dict[str, PluginRecord] = {}
    for record in registry.active():
        if record.state is not State.ACTIVE:  # blocked meanwhile: a plugin that it requires has failed
            continue
        claims = list(_claims(record))
        # Check claims first: their message is clearer than that of the routes.
        failure = _claim_conflict(claims, owners) or _routing_conflict(record, owners.values())
        if failure is not None:
            registry.fail(record, failure)
        else:
            owners.update(dict.fromkeys(claims, record))


def order_middleware(registry: Registry) -> tuple[tuple[PluginRecord, Middleware], ...]:
    """Order all middleware by `before` and `after`, outermost first. Of a cycle, the last plugin fails."""
    while True:
        declared = {each.name: (record, each) for record in registry.active() for each in record.declared.middleware}
        graph = {
            name: [other for other, (_, its) in declared.items() if other in each.after or name in its.before]
            for name, (_, each) in declared.items()
        }
        try:
            return tuple(declared[name] for name in sort_graph(graph))
        except CycleError as error:
            cycle = error.args[1]
            record, _ = max((declared[name] for name in cycle), key=lambda pair: registry.records.index(pair[0]))
            cause = f"middleware order is a circle: {' before '.join(cycle)}"
            registry.fail(record, Failure("register_middleware", cause, "Disable one of these plugins."))


def _claim_conflict(claims: list[str], owners: dict[str, PluginRecord]) -> Failure | None:
    repeated = next((claim for claim, count in Counter(claims).items() if count > 1), None)
    taken = next((claim for claim in claims if claim in owners), None)
    if repeated is not None:
        return Failure("conflict", f"it claims the {repeated} twice")
    if taken is None:
        return None
    cause = f"the {taken} belongs to {owners[taken].installed.label} already"
    if taken.startswith(("prefix ", "route ")):
        return Failure("conflict", cause, _PREFIX_ADVICE)
    if taken.startswith("setting "):
        return Failure("conflict", cause, _STORE_ADVICE)
    return Failure("conflict", cause, "Disable one of the two plugins.")


def _claims(record: PluginRecord) -> Iterator[str]:
    """Yield the claims of a plugin, as words for a message. Each must be unique on the host."""
    declared = record.declared
    for store in declared.stores:
        yield f"store {store.name}"
        yield f"setting stores.urls.{variable_name(store.name)} of stores that differ only in - and _"
        yield from (f"table {table.lower()}" for table in store.tables)
    for group in declared.groups:
        site = record.site_of(group)
        yield f"prefix {group.prefix} on site {site}"
        for route in group.routes:
            yield f"route {_field.sub('{}', group.prefix + route.path)} on site {site}"
    yield from (f"middleware {each.name}" for each in declared.middleware)
    yield from (f"health check {each.name}" for each in declared.checks)
    yield from (f"job {record.name}/{each.name}" for each in declared.jobs)
    yield from (f"page {record.name}/{each.name}" for each in declared.pages)


def _routing_conflict(record: PluginRecord, others: Iterable[PluginRecord]) -> Failure | None:
    """Return why Falcon's router refuses a plugin's routes along with others on the same site, or None."""
    mounted = [(other, each) for other in dict.fromkeys((*others, record)) for each in other.declared.groups]
    for group in record.declared.groups:
        for other, each in mounted:
            same_site = other.site_of(each) == record.site_of(group)
            if each is not group and same_site and _is_nested(each.prefix, group.prefix):
                clash = routing_problem([each, group])
                if clash is not None:
                    cause = f"{clash}; the other route belongs to {other.installed.label}"
                    return Failure("conflict", cause, "" if other is record else _PREFIX_ADVICE)
    return None


def _is_nested(one: str, other: str) -> bool:
    """Return whether one prefix is below the other. Otherwise a literal segment separates the routes."""
    shorter, longer = sorted((f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"), key=len)
    return longer.startswith(shorter)
