"""Generations: immutable assemblies of the installed plugins, from discovery to one app per site."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING

from plughost._apps.application import SiteApp, build_site_apps
from plughost._apps.edge import SAFE_METHODS
from plughost._plugins import conflicts, loader, registration
from plughost._plugins.allowed import mark_disallowed
from plughost._plugins.environment import Environment
from plughost._plugins.failures import Failure
from plughost._plugins.not_installed import single_files
from plughost._plugins.pth_files import PthFiles
from plughost._plugins.registry import PluginRecord, Registry, State
from plughost._runtime.audit import audit_of, audit_warnings
from plughost._runtime.optional import library_problems
from plughost._runtime.sites import exposed_addresses
from plughost._settings.errors import PLUGINS_LISTER, did_you_mean
from plughost._settings.models import MountSettings
from plughost.http._request import is_loopback
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
    """Discovers what is installed, at each reload."""

    def __init__(self, distributions: Callable[[], Iterable[metadata.Distribution]] | None) -> None:
        """Discover what this function returns at each call; by default, all distributions on `sys.path`."""
        self._distributions = distributions or metadata.distributions
        self._pth_files = PthFiles() if distributions is None else None

    def discover(self, settings: Settings, *, dev: bool) -> Environment:
        """Return what is installed now."""
        if self._pth_files is not None:
            self._pth_files.unload_removed()
        folder = plugins_dir(settings, dev=dev)
        environment = Environment([*self._distributions(), *(single_files(folder) if folder is not None else ())])
        environment.warnings += _single_file_warnings(settings, dev=dev)
        if self._pth_files is not None:
            usable = [each for each in mark_disallowed(environment.plugins, settings.host.allowed) if not each.problem]
            self._pth_files.load_new(environment, {key for each in usable for key in each.closure})
        return environment


def plugins_dir(settings: Settings, *, dev: bool) -> Path | None:
    """Return the folder of single-file plugins. None without that setting or `--dev`, or if others can reach a site."""
    folder = settings.path(settings.host.plugins_dir)
    return folder if dev and not exposed_addresses(settings) else None


class GenerationRefused(Exception):  # noqa: N818 - the host's decision, not its error
    """The host refuses to serve: a required plugin does not serve, or a setting can't be fulfilled.

    Attributes:
        registry: All plugins and their states.
    """

    def __init__(self, message: str, registry: Registry) -> None:
        super().__init__(message)
        self.registry = registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One assembly of a host.

    Attributes:
        registry: All plugins and their states.
        stores: The open stores, by name.
        rate_limits: The counters of rate limits.
        sites: The app of each site, by name. A site without an active plugin is missing.
        warnings: Warnings for the operator.
        problems: Why it can't serve, for reasons other than its plugins.
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
        """Return the lines that plugins announce when the host starts."""
        return (line for record in self.registry.active() for line in record.context.announcements)

    def observers(self) -> dict[str, tuple[Observer, ...]]:
        """Return the observers of requests, by plugin."""
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

    Its registry says why plugins do not serve. Unchanged stores of the running generation are reused.
    """
    exposed = exposed_addresses(settings) if dev else ()
    dev = dev and not exposed
    loader.load(registry)
    registration.validate_settings(registry, settings)
    problems = tuple(library_problems(settings.host))
    rate_limits = RateLimits() if problems else _rate_limits(settings, running, logger)
    registration.set_contexts(
        registry,
        data_root=settings.data_dir,
        logger=logger,
        rate_limits=rate_limits,
        services=view,
        dev=dev,
        trusted=settings.host.trusted,
        audits=audit_of(settings, logger),
    )
    registration.declare_stores(registry)
    stores = _prepare_stores(registry, settings, running, logger, view.events)
    registration.set_stores(registry, stores)
    registration.declare_authenticator(registry)
    registration.declare(registry)
    sites = build_site_apps(registry, _resolve_conflicts(registry), settings, logger, request_log, dev=dev)
    _log_failures(registry, logger)
    return Generation(
        settings=settings,
        dev=dev,
        logger=logger,
        request_log=request_log,
        registry=registry,
        stores=stores.of(record.name for record in registry.active()),
        rate_limits=rate_limits,
        sites=sites,
        warnings=tuple(_warnings(registry, settings, without, sites, exposed)),
        problems=problems,
    )


def migrate(
    generation: Generation, prepare: Callable[[Collection[str]], None], running: Generation | None = None
) -> Generation:
    """Migrate the stores of a generation, unseen by others: `Stores.open` commits it, `Generation.close` undoes it.

    Before a store's file is made, `prepare` raises if the sites can't be served. The generation returned lacks the
    plugins whose stores can't be migrated.
    """
    prepare(generation.sites)
    previous = running.stores if running is not None else None
    return _with_stores(generation, migrate_stores(generation.stores, previous), previous)


def rehearse(generation: Generation) -> Generation:
    """Test whether the stores of a generation could be migrated and opened. See `migrate`."""
    return _with_stores(generation, try_stores(generation.stores))


def refuse_incomplete(generation: Generation, *, strict: bool) -> None:
    """Refuse a generation that lacks a required plugin.

    Raises:
        GenerationRefused: A required plugin is missing or does not serve, or a setting can't be fulfilled.
    """
    problems = start_problems(generation)
    if strict or generation.settings.host.strict:
        problems += [f"{record.name} is {record.state}" for record in generation.registry if record.failure is not None]
    if problems:
        raise GenerationRefused("; ".join(dict.fromkeys(problems)), generation.registry)


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


def refuse_losses(running: Registry, following: Registry, accept: Collection[str]) -> None:
    """Refuse a generation in which a plugin that serves now would fail.

    Raises:
        GenerationRefused: A plugin would fail that `accept` does not name.
    """
    serving = {record.name for record in running.active()} - set(accept)
    lost = [record for record in following if record.failure is not None and record.name in serving]
    if lost:
        raise GenerationRefused(
            "; ".join(f"{record.installed.label} would be {record.state}" for record in lost), following
        )


def _with_stores(generation: Generation, stores: Stores, previous: Stores | None = None) -> Generation:
    """Return a generation with these stores, and without the plugins whose stores failed."""
    registry, sites = generation.registry, generation.sites
    try:
        before = {record.name for record in registry if record.failure is not None}
        if _fail_for_stores(registry, stores):
            middleware, logger = _resolve_conflicts(registry), generation.logger
            sites = build_site_apps(
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
    declared = {record.name: record.declared.stores for record in registry.active() if record.declared.stores}
    stores = prepare_stores(declared, settings.stores, previous, logger, events)
    _fail_for_stores(registry, stores)
    return stores


def _rate_limits(settings: Settings, running: Generation | None, logger: structlog.stdlib.BoundLogger) -> RateLimits:
    """Return the rate limits of the running generation if their settings are unchanged, or else new ones."""
    if running is not None and running.rate_limits.settings == settings.host.rate_limits:
        return running.rate_limits
    return RateLimits(settings.host.rate_limits, logger)


def _log_failures(registry: Registry, logger: structlog.stdlib.BoundLogger, known: Collection[str] = ()) -> None:
    for record in registry:
        if record.failure is not None and record.name not in known:
            trace = {"exception": record.failure.trace} if record.failure.trace else {}
            reason = str(record.failure)
            logger.error(
                "plugin does not serve", plugin=record.installed.label, state=record.state.value, reason=reason, **trace
            )


def _fail_for_stores(registry: Registry, stores: Stores) -> bool:
    """Fail the plugins with a store that can't be opened. Return whether there were any."""
    failed = [record for record in registry.active() if record.name in stores.failures]
    for record in failed:
        cause = str(stores.failures[record.name]).removeprefix("store ").rstrip(".")
        registry.fail(record, Failure("store", cause, "Mend that, then start or reload again."))
    return bool(failed)


def _resolve_conflicts(registry: Registry) -> tuple[tuple[PluginRecord, Middleware], ...]:
    """Fail plugins whose declarations conflict. Return all middleware, outermost first.

    If the authenticator's plugin fails, the others declare again without it.
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
    installed = [record.name for record in registry]
    yield from settings.unknown_plugins(installed)
    yield from settings.unknown_variables({record.name: record.settings_model for record in registry})
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


def _single_file_warnings(settings: Settings, *, dev: bool) -> tuple[str, ...]:
    """Return a warning if the files of `plugins_dir` are not served."""
    folder = settings.path(settings.host.plugins_dir)
    if not dev or folder is None:
        return ()
    if not folder.is_dir():
        return (f"plugins_dir: there is no folder {folder}",)
    exposed = " and ".join(exposed_addresses(settings))
    return (f"plugins_dir: its files are not served while others can reach {exposed}",) if exposed else ()
