"""A generation: an immutable assembly of plugins, their stores, and one app per site; and the reports of a reload."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from plughost._api.reload_report import ReloadReport
from plughost._apps.edge import SAFE_METHODS
from plughost._plugins.registry import Registry, State
from plughost._settings.errors import PLUGINS_LISTER, did_you_mean
from plughost._settings.models import MountSettings
from plughost.ratelimits import RateLimits
from plughost.stores._manager import Stores

if TYPE_CHECKING:
    from pydantic import BaseModel

    from plughost._api.declarations import Observer
    from plughost._api.host import Value
    from plughost._apps.application import SiteApp
    from plughost._plugins.environment import Environment
    from plughost._plugins.registry import PluginRecord
    from plughost._settings.sources import Settings


class GenerationRefused(Exception):  # noqa: N818 - the host's decision, not its error
    """The host refuses to serve: a required plugin does not serve, or a setting can't be fulfilled."""

    def __init__(self, message: str, registry: Registry) -> None:
        super().__init__(message)
        self.registry = registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One assembly of a host. By default, that of a host that has not started: without plugins.

    Attributes:
        number: Its number, from 1; 0 before the start.
        sites: The app of each site, by name. A site without an active plugin is missing.
        warnings: Warnings for the operator.
        problems: Why it can't serve, for reasons other than its plugins.
    """

    settings: Settings
    number: int = 0
    registry: Registry = field(default_factory=lambda: Registry(()))
    stores: Stores = field(default_factory=Stores)
    rate_limits: RateLimits = field(default_factory=RateLimits)
    sites: Mapping[str, SiteApp] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def models(self) -> dict[str, BaseModel | None]:
        """The settings of plugins with a valid table, by plugin; None for a plugin without settings of its own."""
        return {record.name: record.settings for record in self.registry if record.mount is not None}

    def setting_values(self) -> list[Value]:
        """Return all effective settings, those of plugins too. Secrets are masked.

        Mount settings of a plugin that mounts nothing are left out, unless they were set.
        """
        unmounted = {
            f"plugins.{record.name}.{key}"
            for record in self.registry
            if "register_routes" not in record.hooks
            for key in MountSettings.model_fields
        }
        values = self.settings.values(self.models)
        return [each for each in values if each.key not in unmounted or each.source != "default"]

    def nonblocking_methods(self) -> dict[str, frozenset[str]]:
        """Return the plugins that use stores, and their methods that never block: reads from SQLite."""
        stores = {
            record.name: record.context.stores.values() for record in self.registry.active() if record.context.stores
        }
        return {
            name: SAFE_METHODS if all(store.dialect == "sqlite" for store in used) else frozenset()
            for name, used in stores.items()
        }

    def announcements(self) -> Iterable[str]:
        return (line for record in self.registry.active() for line in record.context.announcements)

    def observers(self) -> dict[str, tuple[Observer, ...]]:
        return {
            record.name: record.declared.observers for record in self.registry.active() if record.declared.observers
        }

    def close(self, still_used_by: Generation | None = None) -> None:
        """Close the stores and rate limits, except those of another generation. No request may be in flight."""
        self.stores.close(still_used_by.stores if still_used_by is not None else None)
        if still_used_by is None or still_used_by.rate_limits is not self.rate_limits:
            self.rate_limits.close()

    def names(self, *, reused: bool) -> frozenset[str]:
        """Return the active plugins that are reused, or those that are not."""
        return frozenset(record.name for record in self.registry.active() if record.reused is reused)

    def has_shared_middleware(self, plugins: Collection[str]) -> bool:
        """Return whether any of these plugins has middleware that wraps other plugins' requests."""
        own = [record for record in self.registry.active() if record.name in plugins]
        return any(each.scope != "plugin" for record in own for each in record.declared.middleware)

    def notify(self, hook: str, plugins: Collection[str] | None = None) -> None:
        """Call `started`, `draining` or `stopping` of some active plugins, or of all.

        An exception is logged and recorded as trouble.
        """
        for record in self.registry.active():
            if hook in record.hooks and (plugins is None or record.name in plugins):
                failure = self.registry.notify(record, hook)
                if failure is not None:
                    record.context.logger.error("hook failed", reason=str(failure), exception=failure.trace)


def refuse(generation: Generation, running: Generation, accept: Collection[str], *, strict: bool) -> None:
    """Refuse a generation that lacks a required plugin, or one that serves now and that `accept` does not name."""
    registry = generation.registry
    failed = [record for record in registry if record.failure is not None]
    problems = start_problems(generation)
    if strict or generation.settings.host.strict:
        problems += [f"{record.name} is {record.state}" for record in failed]
    if not problems:
        serving = {record.name for record in running.registry.active()} - set(accept)
        problems = [f"{each.installed.label} would be {each.state}" for each in failed if each.name in serving]
    if problems:
        raise GenerationRefused("; ".join(dict.fromkeys(problems)), registry)


def damaged_plugins(environment: Environment, running: Generation, leaving: Collection[str]) -> list[str]:
    """Return which plugins that serve are still installed, but are found no longer: their metadata can't be read."""
    found = {each.name for each in environment.plugins} | set(leaving)
    lost = [each.installed for each in running.registry.active() if each.name not in found]
    damages = [(each, environment.installed.get(canonicalize_name(each.distribution))) for each in lost]
    return [
        f"{each.label} can't be found: {now.folder} is damaged: {now.damage}"
        for each, now in damages
        if now is not None and now.damage is not None
    ]


def start_problems(generation: Generation) -> list[str]:
    """Return why the settings can't be fulfilled, such as a required plugin that does not serve."""
    registry = generation.registry
    problems = [*generation.problems]
    for name in generation.settings.host.required:
        record = registry.get(name)
        if record is None:
            known = [each.name for each in registry]
            problems.append(f"the required plugin {name} is not installed{did_you_mean(name, known, PLUGINS_LISTER)}")
        elif record.state is not State.ACTIVE:
            problems.append(f"the required plugin {name} is {record.state}")
    return problems


def moved_stores(running: Generation, following: Generation) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each store that has another place now, and both places."""
    for name, store in following.stores.items():
        if name in running.stores:
            before, place = running.stores[name].database.config.place, store.database.config.place
            if _database_of(before) != _database_of(place):
                yield name, before, place


def _database_of(place: str) -> str:
    """Return a place without the user and the parameters of a URL, which lead to the same database."""
    return re.sub("//[^/@]*@", "//", place.partition("?")[0])


def report_swapped(
    running: Generation, following: Generation, *, cut_off: Iterable[str], restart_needed: Iterable[str]
) -> ReloadReport:
    """Return the report of a reload that swapped in a generation."""
    after, active, leaving = following.registry, following.registry.active(), running.registry.active()
    active_before = {record.name for record in leaving}
    return ReloadReport(
        swapped=True,
        generation=following.number,
        added=tuple(record.name for record in active if record.name not in active_before),
        changed=tuple(record.name for record in active if record.name in active_before and not record.reused),
        disabled=tuple(
            record.name for record in after if record.name in active_before and record.state is State.DISABLED
        ),
        removed=tuple(sorted(active_before - {record.name for record in after})),
        reused=tuple(record.name for record in active if record.reused),
        failed=_failure_reasons(after, State.FAILED),
        blocked=_failure_reasons(after, State.BLOCKED),
        cut_off=tuple(cut_off),
        restart_needed=tuple(restart_needed),
        trouble=(*trouble_of(active), *trouble_of(leaving, "stopping")),
        seconds=_seconds(after),
    )


def report_unchanged(
    running: Generation,
    problems: Iterable[str],
    *,
    refused: Iterable[PluginRecord] = (),
    restart_needed: Iterable[str] = (),
) -> ReloadReport:
    """Return the report of a reload that left the running generation unchanged."""
    return ReloadReport(
        swapped=False,
        generation=running.number,
        problems=tuple(problems),
        failed=_failure_reasons(refused, State.FAILED),
        blocked=_failure_reasons(refused, State.BLOCKED),
        restart_needed=tuple(restart_needed),
        seconds=_seconds(refused),
    )


def trouble_of(records: Iterable[PluginRecord], stage: str = "") -> tuple[tuple[str, str], ...]:
    """Return the troubles of plugins that serve; only those of `stage`, if given."""
    return tuple(
        (record.installed.label, str(failure))
        for record in records
        for failure in record.trouble
        if stage in {"", failure.stage}
    )


def _failure_reasons(records: Iterable[PluginRecord], state: State) -> tuple[tuple[str, str], ...]:
    return tuple((record.installed.label, str(record.failure)) for record in records if record.state is state)


def _seconds(records: Iterable[PluginRecord]) -> dict[str, float]:
    loaded = (record for record in records if record.state is State.ACTIVE and not record.reused)
    return {record.name: round(sum(record.seconds.values()), 4) for record in loaded}
