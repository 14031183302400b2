"""Build a generation: one immutable assembly of the installed plugins, from discovery to one app per site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING

from plughost._apps.application import SiteApp, assemble
from plughost._apps.edge import SAFE, is_loopback
from plughost._plugins import conflicts, loader, registration
from plughost._plugins.allowed import only_allowed
from plughost._plugins.environment import Environment
from plughost._plugins.failures import Failure
from plughost._plugins.in_place import PathFiles
from plughost._plugins.registry import Entry, Registry, State
from plughost._plugins.single_files import single_files
from plughost._runtime.audit import audit_of, audit_warnings
from plughost._runtime.optional import unusable
from plughost._runtime.sites import exposed_addresses
from plughost._settings.errors import PLUGINS_LISTER, did_you_mean
from plughost._settings.models import MountSettings
from plughost.ratelimits import RateLimits
from plughost.stores import Stores, migrate_stores, prepare_stores, try_stores

if TYPE_CHECKING:
    from pathlib import Path

    import structlog
    from pydantic import BaseModel

    from plughost._api.declarations import Middleware, Observer
    from plughost._api.events import Events
    from plughost._api.host import HostServices, Value
    from plughost._runtime.request_log import RequestLog
    from plughost._settings.models import SiteSettings
    from plughost._settings.sources import Settings


class Discovery:
    """Looks at what is installed, again and again."""

    def __init__(self, distributions: Callable[[], Iterable[metadata.Distribution]] | None) -> None:
        """Look at what this returns each time, or at all on `sys.path`."""
        self._distributions = distributions or metadata.distributions
        self._path_files = PathFiles() if distributions is None else None

    def look(self, settings: Settings, *, dev: bool) -> Environment:
        """Return what is installed now."""
        if self._path_files is not None:
            self._path_files.forget_removed()
        folder = plugins_dir(settings, dev=dev)
        environment = Environment([*self._distributions(), *(single_files(folder) if folder is not None else ())])
        environment.warnings += _without_files(settings, dev=dev)
        if self._path_files is not None:
            usable = [each for each in only_allowed(environment.plugins, settings.host.allowed) if not each.problem]
            self._path_files.read_new(environment, {key for each in usable for key in each.closure})
        return environment


def plugins_dir(settings: Settings, *, dev: bool) -> Path | None:
    """Return the folder whose files are plugins. None where nobody named one, or others than a developer come by."""
    folder = settings.path(settings.host.plugins_dir)
    return folder if dev and not exposed_addresses(settings) else None


class GenerationRefused(Exception):  # noqa: N818 - it is a decision of the host, not an error in it
    """The host refuses to start: a required plugin does not serve, or the settings ask for what can't be had.

    Attributes:
        registry: Every plugin and what became of it.
    """

    def __init__(self, message: str, registry: Registry) -> None:
        super().__init__(message)
        self.registry = registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One assembly of a host.

    Attributes:
        registry: Every plugin and what became of it.
        stores: The open stores, by name.
        rate_limits: Where rate limits are counted.
        sites: What each site serves, by name. A site without an active plugin is missing.
        warnings: What the operator should know.
        problems: Why it can't serve, whatever its plugins are like.
    """

    settings: Settings
    dev: bool
    logger: structlog.stdlib.BoundLogger
    request_log: RequestLog
    registry: Registry
    stores: Stores
    rate_limits: RateLimits
    sites: Mapping[str, SiteApp]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def models(self) -> dict[str, BaseModel | None]:
        """The settings of the plugins whose tables can be used, by plugin; None of one that has none of its own."""
        return {entry.name: entry.settings for entry in self.registry if entry.mount is not None}

    def setting_values(self) -> list[Value]:
        """Return every setting in force, those of the plugins too. Secrets are masked.

        Where and how a plugin that mounts nothing is mounted is left out, unless somebody set it.
        """
        idle = {
            f"plugins.{entry.name}.{key}"
            for entry in self.registry
            if "register_routes" not in entry.hooks
            for key in MountSettings.model_fields
        }
        values = self.settings.values(self.models)
        return [each for each in values if each.key not in idle or each.source != "default"]

    def blocking_plugins(self) -> dict[str, frozenset[str]]:
        """Return the plugins that use stores, and which methods of theirs wait for nothing: reads of SQLite."""
        stores = {entry.name: entry.context.stores.values() for entry in self.registry.active() if entry.context.stores}
        return {
            name: SAFE if all(store.dialect == "sqlite" for store in used) else frozenset()
            for name, used in stores.items()
        }

    def announcements(self) -> Iterable[str]:
        """Return what the plugins say to the person who starts the host."""
        return (line for entry in self.registry.active() for line in entry.context.announcements)

    def observers(self) -> dict[str, tuple[Observer, ...]]:
        """Return the observers of requests, by plugin."""
        return {entry.name: entry.declared.observers for entry in self.registry.active() if entry.declared.observers}

    def close(self, keep: Generation | None = None) -> None:
        """Close the stores, but for those that another generation uses. Nothing may be in flight any more."""
        self.stores.close(keep.stores if keep is not None else None)
        if keep is None or keep.rate_limits is not self.rate_limits:
            self.rate_limits.close()

    def names(self, *, reused: bool) -> frozenset[str]:
        """Return the active plugins that are reused, or those that are not."""
        return frozenset(entry.name for entry in self.registry.active() if entry.reused is reused)

    def wraps_others(self, plugins: Collection[str]) -> bool:
        """Return whether some plugins have middleware that is around other plugins' requests."""
        own = [entry for entry in self.registry.active() if entry.name in plugins]
        return any(each.scope != "plugin" for entry in own for each in entry.declared.middleware)

    def notify(self, hook: str, plugins: Collection[str] | None = None) -> None:
        """Call `started`, `draining` or `stopping` of some active plugins, or of all.

        One that raises is logged, and noted as trouble.
        """
        for entry in self.registry.active():
            if hook in entry.hooks and (plugins is None or entry.name in plugins):
                failure = self.registry.notify(entry, hook)
                if failure is not None:
                    entry.context.logger.error("hook failed", reason=str(failure), exception=failure.trace)


def build(
    registry: Registry,
    settings: Settings,
    logger: structlog.stdlib.BoundLogger,
    view: HostServices,
    request_log: RequestLog,
    *,
    dev: bool,
    without: Collection[str],
    running: Generation | None,
) -> Generation:
    """Build a generation, without opening a port or a store. See `migrate`.

    It has every plugin that can be used, and the reason for each that can't. Plugins that are reused are marked in the
    registry. The stores of the running generation are reused where they are the same.
    """
    exposed = exposed_addresses(settings) if dev else ()
    dev = dev and not exposed
    loader.load(registry)
    registration.validate_settings(registry, settings)
    problems = tuple(unusable(settings.host))
    rate_limits = RateLimits() if problems else _rate_limits(settings, running, logger)
    registration.give_contexts(
        registry,
        data_root=settings.data_dir,
        logger=logger,
        rate_limits=rate_limits,
        view=view,
        dev=dev,
        trusted=settings.host.trusted,
        audits=audit_of(settings, logger),
    )
    registration.declare_stores(registry)
    stores = _prepare_stores(registry, settings, running, logger, view.events)
    registration.give_stores(registry, stores)
    registration.declare_authenticator(registry)
    registration.declare(registry)
    sites = assemble(registry, _settle(registry), settings, logger, request_log, dev=dev)
    _log_failures(registry, logger)
    return Generation(
        settings=settings,
        dev=dev,
        logger=logger,
        request_log=request_log,
        registry=registry,
        stores=stores.of(entry.name for entry in registry.active()),
        rate_limits=rate_limits,
        sites=sites,
        warnings=tuple(_warnings(registry, settings, without, sites, exposed)),
        problems=problems,
    )


def migrate(
    generation: Generation, prepare: Callable[[Collection[str]], None], running: Generation | None = None
) -> Generation:
    """Migrate the stores of a generation where nobody sees it: `Stores.open` keeps that, `Generation.close` undoes it.

    Before a store's file is made, `prepare` raises where the sites can't be served. What is returned lacks the plugins
    whose stores can't be migrated.
    """
    prepare(generation.sites)
    previous = running.stores if running is not None else None
    return _with_stores(generation, migrate_stores(generation.stores, previous), previous)


def rehearse(generation: Generation) -> Generation:
    """See whether the stores of a generation could be migrated and opened. See `migrate`."""
    return _with_stores(generation, try_stores(generation.stores))


def refuse_incomplete(generation: Generation, *, strict: bool) -> None:
    """Refuse a generation that lacks a required plugin.

    Raises:
        GenerationRefused: A required plugin is missing or does not serve, or the settings ask for what can't be had.
    """
    problems = lacking(generation)
    if strict or generation.settings.host.strict:
        problems += [f"{entry.name} is {entry.state}" for entry in generation.registry if entry.failure is not None]
    if problems:
        raise GenerationRefused("; ".join(dict.fromkeys(problems)), generation.registry)


def lacking(generation: Generation) -> list[str]:
    """Return what the settings ask for and can't be had, a required plugin that does not serve among it."""
    registry = generation.registry
    problems = [*generation.problems]
    for name in generation.settings.host.required:
        entry = registry.get(name)
        if entry is None:
            known = [each.name for each in registry]
            problems.append(f"the required plugin {name} is not installed{did_you_mean(name, known, PLUGINS_LISTER)}")
        elif entry.state is not State.ACTIVE:
            problems.append(f"the required plugin {name} is {entry.state}")
    return problems


def refuse_losses(running: Registry, following: Registry, accept: Collection[str]) -> None:
    """Refuse a generation in which a plugin that serves now would fail.

    Raises:
        GenerationRefused: There is one that is not accepted.
    """
    serving = {entry.name for entry in running.active()} - set(accept)
    lost = [entry for entry in following if entry.failure is not None and entry.name in serving]
    if lost:
        raise GenerationRefused(
            "; ".join(f"{entry.installed.label} would be {entry.state}" for entry in lost), following
        )


def _with_stores(generation: Generation, stores: Stores, previous: Stores | None = None) -> Generation:
    """Return a generation with these stores, and without the plugins whose stores failed."""
    registry, sites = generation.registry, generation.sites
    try:
        before = {entry.name for entry in registry if entry.failure is not None}
        if _fail_for_stores(registry, stores):
            middleware, logger = _settle(registry), generation.logger
            sites = assemble(
                registry, middleware, generation.settings, logger, generation.request_log, dev=generation.dev
            )
            _log_failures(registry, logger, known=before)
        warnings = (*generation.warnings, *stores.doubts, *stores.edited)
        return replace(generation, stores=stores, sites=sites, warnings=warnings)
    except BaseException:
        stores.close(previous)
        raise


def _prepare_stores(
    registry: Registry,
    settings: Settings,
    running: Generation | None,
    logger: structlog.stdlib.BoundLogger,
    events: Events,
) -> Stores:
    conflicts.find_store_conflicts(registry)
    previous = running.stores if running is not None else None
    declared = {entry.name: entry.declared.stores for entry in registry.active() if entry.declared.stores}
    stores = prepare_stores(declared, settings.stores, previous, logger, events)
    _fail_for_stores(registry, stores)
    return stores


def _rate_limits(settings: Settings, running: Generation | None, logger: structlog.stdlib.BoundLogger) -> RateLimits:
    """Return where rate limits are counted: as before, for as long as the settings are the same."""
    if running is not None and running.rate_limits.settings == settings.host.rate_limits:
        return running.rate_limits
    return RateLimits(settings.host.rate_limits, logger)


def _log_failures(registry: Registry, logger: structlog.stdlib.BoundLogger, known: Collection[str] = ()) -> None:
    for entry in registry:
        if entry.failure is not None and entry.name not in known:
            trace = {"exception": entry.failure.trace} if entry.failure.trace else {}
            reason = str(entry.failure)
            logger.error(
                "plugin does not serve", plugin=entry.installed.label, state=entry.state.value, reason=reason, **trace
            )


def _fail_for_stores(registry: Registry, stores: Stores) -> bool:
    """Fail the plugins that have a store which can't be opened. Return whether there were any."""
    failed = [entry for entry in registry.active() if entry.name in stores.failures]
    for entry in failed:
        cause = str(stores.failures[entry.name]).removeprefix("store ").rstrip(".")
        registry.fail(entry, Failure("store", cause, "Mend that, then start or reload again."))
    return bool(failed)


def _settle(registry: Registry) -> tuple[tuple[Entry, Middleware], ...]:
    """Settle the conflicts of what plugins mount. Return all middleware, outermost first.

    The plugin that names principals may be among those that fail here. The others are then asked again, without it.
    """
    while True:
        conflicts.find_conflicts(registry)
        middleware = conflicts.order_middleware(registry)
        if not registration.withdraw_authenticator(registry):
            return middleware
        registration.declare(registry)


def _warnings(
    registry: Registry, settings: Settings, without: Collection[str], sites: Iterable[str], exposed: Collection[str]
) -> Iterator[str]:
    if exposed:
        yield (
            f"--dev on {', '.join(exposed)}, which others can reach: there are no demo users, no console and no"
            " Swagger UI; listen on 127.0.0.1 to have them"
        )
    yield from audit_warnings(settings)
    installed = [entry.name for entry in registry]
    yield from settings.unknown_plugins(installed)
    yield from settings.unknown_variables({entry.name: entry.settings_model for entry in registry})
    for name in (*settings.host.disabled, *without):
        if name not in installed:
            meant = did_you_mean(name, installed, PLUGINS_LISTER)
            yield f"{name} is to be skipped, and no plugin of this name is installed{meant}"
    for name in sites:
        site: SiteSettings = getattr(settings.host.sites, name)
        address = site.address or settings.host.address
        if not site.allowed_hosts and not is_loopback(address):
            yield (
                f"the site {name} is reached from elsewhere ({address}) and answers whatever Host a request names;"
                f" set sites.{name}.allowed_hosts to the names that it is reached by"
            )


def _without_files(settings: Settings, *, dev: bool) -> tuple[str, ...]:
    """Return why a developer's single files are no plugins, as a sentence, if so."""
    folder = settings.path(settings.host.plugins_dir)
    if not dev or folder is None:
        return ()
    if not folder.is_dir():
        return (f"plugins_dir: there is no folder {folder}",)
    exposed = " and ".join(exposed_addresses(settings))
    return (f"plugins_dir: its files are not served while others can reach {exposed}",) if exposed else ()
