"""Build a generation: one immutable assembly of the installed plugins, from discovery to one app per site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from plughost import conflicts, declaring, loading
from plughost.http.application import App, build_app
from plughost.http.around import around_site
from plughost.http.mounting import MountedGroup, mount
from plughost.isolation import never
from plughost.logs import AccessLog
from plughost.ratelimits import RateLimits
from plughost.roster import Entry, Failure, Roster, State
from plughost.stores import Stores, open_stores, prepare_stores

if TYPE_CHECKING:
    import pluggy
    import structlog

    from plughost.answered import AnsweredRequests
    from plughost.declarations import Middleware, Observer, RouteGroup
    from plughost.discovery import Found
    from plughost.events import Events
    from plughost.settings import Settings
    from plughost.view import HostView


class Refusal(Exception):  # noqa: N818 - it is a decision of the host, not an error in it
    """The host refuses to start: a required plugin does not serve.

    Attributes:
        roster: Every plugin and what became of it.
    """

    def __init__(self, message: str, roster: Roster) -> None:
        """Keep the roster beside the message."""
        super().__init__(message)
        self.roster = roster


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAssembly:
    """What one site serves in a generation.

    Attributes:
        groups: The route groups mounted on it.
        middleware: The middleware around it, outermost first.
        app: Its Falcon app.
        body_limit: Largest request body in bytes that any of its groups accepts.
    """

    groups: tuple[MountedGroup, ...]
    middleware: tuple[Middleware, ...]
    app: App
    body_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One assembly of a host.

    Attributes:
        settings: The settings that it was built with.
        manager: The plugin manager with its plugins.
        roster: Every plugin and what became of it.
        stores: The open stores, by name.
        rate_limits: Where rate limits are counted.
        sites: What each site serves, by name; a site without an active plugin is missing.
        warnings: What the operator should know.
    """

    settings: Settings
    manager: pluggy.PluginManager
    roster: Roster
    stores: Stores
    rate_limits: RateLimits
    sites: Mapping[str, SiteAssembly]
    warnings: tuple[str, ...]

    def announcements(self) -> Iterable[str]:
        """Return what the plugins say to the person who starts the host."""
        return (line for entry in self.roster.active() for line in entry.context.announcements)

    def observers(self) -> dict[str, tuple[Observer, ...]]:
        """Return who is told of answered requests, by plugin."""
        return {entry.name: entry.declared.observers for entry in self.roster.active() if entry.declared.observers}

    def close(self, keep: Generation | None = None) -> None:
        """Close the stores, but for those that another generation uses; nothing may be in flight any more."""
        self.stores.close(keep.stores if keep is not None else None)
        if keep is None or keep.rate_limits is not self.rate_limits:
            self.rate_limits.close()

    def notify(self, hook: str, *, fresh_only: bool = False, leaving: Generation | None = None) -> None:
        """Call `started` or `stopping` of the active plugins; one that raises is logged, and noted as trouble.

        Args:
            hook: The hook.
            fresh_only: Leave out the plugins that were carried over from the generation before.
            leaving: The next generation: leave out the plugins that it carries over.
        """
        carried = {entry.name for entry in leaving.roster.active() if entry.carried} if leaving is not None else ()
        for entry in self.roster.active():
            if hook in entry.hooks and entry.name not in carried and not (fresh_only and entry.carried):
                failure = self.roster.tell(entry, hook, partial(loading.call, self.manager, entry, hook))
                if failure is not None:
                    entry.context.logger.error("hook failed", reason=str(failure), exception=failure.trace)


def build(
    found: Iterable[Found],
    settings: Settings,
    logger: structlog.stdlib.BoundLogger,
    view: HostView,
    answered: AnsweredRequests,
    *,
    dev: bool = False,
    without: Collection[str] = (),
    look_only: bool = False,
    running: Generation | None = None,
    carry: Callable[[Roster], None] | None = None,
    interrupted: Callable[[], bool] = never,
) -> Generation:
    """Build a generation, without opening a port.

    Args:
        found: What discovery returned.
        settings: The settings.
        logger: The host's logger.
        view: What the plugins may see of the host.
        answered: Notes the answered requests, where a plugin observes them.
        dev: Whether the host runs with `--dev`.
        without: Plugins to skip, beside those that the settings disable.
        look_only: Leave the stores closed: nothing is migrated, and the generation can't serve.
        running: The generation that serves now, whose stores are carried over where they are the same.
        carry: Called with the roster, to mark the plugins that are carried over.
        interrupted: Tells whether there is no use in going on, since the host is stopping.

    Returns:
        The generation, with every plugin that could be used and the reason for each that could not.
    """
    manager = loading.new_manager()
    roster = Roster(
        found, {*settings.host.disabled, *without}, timeout=settings.host.hook_timeout, interrupted=interrupted
    )
    if carry is not None:
        carry(roster)
    loading.load(roster, manager)
    declaring.validate_settings(roster, manager, settings)
    rate_limits = _rate_limits(settings, running, logger)
    declaring.give_contexts(
        roster, manager, data_root=settings.data_dir, logger=logger, rate_limits=rate_limits, view=view, dev=dev
    )
    declaring.declare_stores(roster, manager)
    conflicts.find_store_conflicts(roster)
    stores = _open_stores(roster, settings, running, logger, view.events, look_only=look_only)
    declaring.give_stores(roster, manager, stores)
    middleware = _declare(roster, manager)
    sites = _assemble(roster, middleware, settings, logger, answered)
    _log_failures(roster, logger)
    return Generation(
        settings=settings,
        manager=manager,
        roster=roster,
        stores=stores,
        rate_limits=rate_limits,
        sites=sites,
        warnings=tuple(_warnings(roster, settings, without)),
    )


def refuse_incomplete(generation: Generation, *, strict: bool = False) -> None:
    """Refuse a generation that lacks a required plugin.

    Args:
        generation: What was built.
        strict: Whether every installed plugin that is not disabled is required.

    Raises:
        Refusal: A required plugin is missing or does not serve.
    """
    roster, host = generation.roster, generation.settings.host
    problems = []
    for name in host.required:
        entry = roster.get(name)
        if entry is None:
            problems.append(f"the required plugin {name} is not installed")
        elif entry.state is not State.ACTIVE:
            problems.append(f"the required plugin {name} is {entry.state}")
    if strict or host.strict:
        problems += [f"{entry.name} is {entry.state}" for entry in roster if entry.failure is not None]
    if problems:
        raise Refusal("; ".join(dict.fromkeys(problems)), roster)


def _rate_limits(settings: Settings, running: Generation | None, logger: structlog.stdlib.BoundLogger) -> RateLimits:
    """Return where rate limits are counted: as before, for as long as the settings are the same."""
    if running is not None and running.rate_limits.settings == settings.host.rate_limits:
        return running.rate_limits
    return RateLimits(settings.host.rate_limits, logger)


def _log_failures(roster: Roster, logger: structlog.stdlib.BoundLogger) -> None:
    for entry in roster:
        if entry.failure is not None:
            trace = {"exception": entry.failure.trace} if entry.failure.trace else {}
            reason = str(entry.failure)
            logger.error(
                "plugin does not serve", plugin=entry.found.label, state=entry.state.value, reason=reason, **trace
            )


def _open_stores(
    roster: Roster,
    settings: Settings,
    running: Generation | None,
    logger: structlog.stdlib.BoundLogger,
    events: Events,
    *,
    look_only: bool,
) -> Stores:
    declared = {entry.name: entry.declared.stores for entry in roster.active() if entry.declared.stores}
    if look_only:
        stores = prepare_stores(declared, settings.stores, logger)
    else:
        previous = running.stores if running is not None else None
        stores = open_stores(declared, settings.stores, previous, logger, events)
    for entry in roster.active():
        error = stores.failures.get(entry.name)
        if error is not None:
            roster.fail(entry, Failure("store", str(error).rstrip("."), "Mend that, then start or reload again."))
    return stores


def _declare(roster: Roster, manager: pluggy.PluginManager) -> tuple[tuple[Entry, Middleware], ...]:
    """Collect what plugins mount and settle their conflicts; return all middleware, outermost first.

    The plugin that names principals may be among those that fail here. The others are then asked again, without it.
    """
    declaring.declare_authenticator(roster, manager)
    while True:
        declaring.declare(roster, manager)
        conflicts.find_conflicts(roster)
        middleware = _ordered(roster)
        if not declaring.withdraw_authenticator(roster, manager):
            return middleware


def _ordered(roster: Roster) -> tuple[tuple[Entry, Middleware], ...]:
    """Order all middleware by `before` and `after`, outermost first; a circle fails the plugins in it."""
    while True:
        declared = {each.name: (entry, each) for entry in roster.active() for each in entry.declared.middleware}
        graph: dict[str, set[str]] = {name: set() for name in declared}
        for name, (_, each) in declared.items():
            graph[name].update(other for other in each.after if other in declared)
            for other in each.before:
                if other in declared:
                    graph[other].add(name)
        sorter = TopologicalSorter(graph)
        try:
            sorter.prepare()
        except CycleError as error:
            circle = list(reversed(error.args[1]))
            entry, _ = max((declared[name] for name in circle), key=lambda pair: roster.entries.index(pair[0]))
            cause = f"middleware order is a circle: {' before '.join(circle)}"
            roster.fail(entry, Failure("register_middleware", cause, "Disable one of these plugins."))
            continue
        ordered = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            ordered += ready
            sorter.done(*ready)
        return tuple(declared[name] for name in ordered)


def _assemble(
    roster: Roster,
    middleware: Iterable[tuple[Entry, Middleware]],
    settings: Settings,
    logger: structlog.stdlib.BoundLogger,
    answered: AnsweredRequests,
) -> dict[str, SiteAssembly]:
    middleware = tuple(middleware)
    mounts: dict[str, list[tuple[Entry, RouteGroup]]] = {}
    for entry in roster.active():
        for group in entry.declared.groups:
            mounts.setdefault(entry.mount.site or group.site, []).append((entry, group))
    outermost: list[object] = [AccessLog(logger)] if settings.host.log.access else []
    if any(entry.declared.observers for entry in roster.active()):
        outermost.append(answered)
    sites = {}
    for name in sorted(mounts):
        around = tuple(
            each for _, each in middleware if each.scope == "host" or (each.scope == "site" and each.site == name)
        )
        hosts_own = around_site(getattr(settings.host.sites, name))
        vary = tuple(header for each in (*hosts_own, *around) for header in each.vary)
        groups = []
        for entry, group in mounts[name]:
            limit = entry.mount.body_limit or group.body_limit or settings.host.body_limit
            own = [each for owner, each in middleware if owner is entry and each.scope == "plugin"]
            groups.append(mount(entry.name, group, int(limit), own, vary))
        components = [*outermost, *(each.component for each in (*hosts_own, *around))]
        sites[name] = SiteAssembly(
            groups=tuple(groups),
            middleware=around,
            app=build_app(groups, components, logger, vary),
            body_limit=max(group.rest.body_limit for group in groups),
        )
    return sites


def _warnings(roster: Roster, settings: Settings, without: Collection[str]) -> Iterable[str]:
    installed = [entry.name for entry in roster]
    yield from settings.unknown_plugins(installed)
    yield from settings.unknown_variables({entry.name: entry.settings_model for entry in roster})
    for name in (*settings.host.disabled, *without):
        if name not in installed:
            yield f"{name} is to be skipped, and no plugin of this name is installed"
