"""Build a generation: discover what is installed, load it, collect its declarations, and migrate its stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from plughost._apps.application import SiteApp, build_site_apps
from plughost._plugins import conflicts, loader, registration
from plughost._plugins.allowed import mark_disallowed
from plughost._plugins.environment import Environment
from plughost._plugins.failures import Failure
from plughost._plugins.pth_files import PthFiles
from plughost._plugins.registry import State
from plughost._plugins.single_files import single_files
from plughost._runtime.audit import audit_warnings
from plughost._runtime.generation import Generation
from plughost._runtime.optional import library_problems
from plughost._runtime.sites import exposed_addresses
from plughost._settings.errors import PLUGINS_LISTER, did_you_mean
from plughost.http._request import is_loopback
from plughost.ratelimits import RateLimits
from plughost.stores import Stores, migrate_stores, prepare_stores, try_stores

if TYPE_CHECKING:
    from pathlib import Path

    from plughost._plugins.registry import Registry
    from plughost._runtime.state import HostState
    from plughost._settings.models import SiteSettings
    from plughost._settings.sources import Settings


class Discovery:
    """Discovers what is installed, at each reload."""

    def __init__(self, distributions: Callable[[], Iterable[metadata.Distribution]] | None) -> None:
        """Discover what this function returns at each call; by default, all distributions on `sys.path`."""
        self._distributions = distributions or metadata.distributions
        self._pth_files = PthFiles()

    def discover(self, settings: Settings, *, dev: bool) -> Environment:
        """Return what is installed now. Plugins that are not allowed have a problem, so they are never imported."""
        self._pth_files.unload_removed()
        folder = plugins_dir(settings, dev=dev)
        environment = Environment([*self._distributions(), *(single_files(folder) if folder is not None else ())])
        environment.warnings += _single_file_warnings(settings, dev=dev)
        environment.plugins = mark_disallowed(environment.plugins, settings.host.allowed)
        usable = [each for each in environment.plugins if not each.problem]
        self._pth_files.load_new(environment, {key for each in usable for key in each.closure})
        return environment


def plugins_dir(settings: Settings, *, dev: bool) -> Path | None:
    """Return the folder of single-file plugins. None without that setting or `--dev`, or if others can reach a site."""
    folder = settings.path(settings.host.plugins_dir)
    return folder if dev and not exposed_addresses(settings) else None


def build(
    host: HostState,
    environment: Environment,
    registry: Registry,
    settings: Settings,
    running: Generation | None = None,
) -> Generation:
    """Build a generation, without opening a port or a store. See `migrate`.

    Its registry says why plugins do not serve. Unchanged stores of the running generation are reused.
    """
    loader.load(registry)
    registration.validate_settings(registry, settings)
    problems = tuple(library_problems(settings.host))
    if problems:
        rate_limits = RateLimits()
    elif running is not None and running.rate_limits.settings == settings.host.rate_limits:
        rate_limits = running.rate_limits
    else:
        rate_limits = RateLimits(settings.host.rate_limits, host.logger)
    registration.set_contexts(
        registry,
        data_root=settings.data_dir,
        logger=host.logger,
        rate_limits=rate_limits,
        services=host.view,
        dev=host.dev and not host.exposed,
        trusted=settings.host.trusted,
        audits=host.audit,
    )
    registration.declare_stores(registry)
    conflicts.find_store_conflicts(registry)
    previous = running.stores if running is not None else None
    declared = {record.name: record.declared.stores for record in registry.active() if record.declared.stores}
    stores = prepare_stores(declared, settings.stores, previous, host.logger, host.events)
    _fail_for_stores(registry, stores)
    registration.set_stores(registry, stores)
    registration.declare_authenticator(registry)
    registration.declare(registry)
    sites = _build_sites(host, registry, settings)
    _log_failures(host, registry)
    warnings = _warnings(host, registry, settings, sites)
    return Generation(
        number=host.generation.number + 1,
        settings=settings,
        registry=registry,
        stores=stores.of(record.name for record in registry.active()),
        rate_limits=rate_limits,
        sites=sites,
        warnings=(*warnings, *environment.warnings),
        problems=problems,
    )


def migrate(host: HostState, generation: Generation, running: Generation | None) -> Generation:
    """Migrate the stores of a generation, unseen by others: `Stores.open` commits it, `Generation.close` undoes it.

    The generation returned lacks the plugins whose stores can't be migrated.
    """
    previous = running.stores if running is not None else None
    return _with_stores(host, generation, migrate_stores(generation.stores, previous), previous)


def rehearse(host: HostState, generation: Generation) -> Generation:
    """Test whether the stores of a generation could be migrated and opened. See `migrate`."""
    return _with_stores(host, generation, try_stores(generation.stores))


def _with_stores(host: HostState, generation: Generation, stores: Stores, previous: Stores | None = None) -> Generation:
    """Return a generation with these stores, and without the plugins whose stores failed."""
    registry, sites = generation.registry, generation.sites
    try:
        before = {record.name for record in registry if record.failure is not None}
        if _fail_for_stores(registry, stores):
            sites = _build_sites(host, registry, generation.settings)
            _log_failures(host, registry, known=before)
        warnings = (*generation.warnings, *stores.doubts, *stores.edited)
        return replace(generation, stores=stores, sites=sites, warnings=warnings)
    except BaseException:
        stores.close(previous)
        raise


def _build_sites(host: HostState, registry: Registry, settings: Settings) -> dict[str, SiteApp]:
    """Fail plugins whose declarations conflict, and build the apps of all sites.

    If the authenticator's plugin fails, the others declare again without it.
    """
    while True:
        conflicts.find_conflicts(registry)
        middleware = conflicts.order_middleware(registry)
        if not registration.withdraw_authenticator(registry):
            break
        registration.declare(registry)
    return build_site_apps(
        registry,
        middleware,
        settings,
        host.logger,
        host.request_log,
        dev=host.dev and not host.exposed,
        audit=host.audit,
    )


def _log_failures(host: HostState, registry: Registry, known: Collection[str] = ()) -> None:
    for record in registry:
        if record.failure is not None and record.name not in known:
            trace = {"exception": record.failure.trace} if record.failure.trace else {}
            reason = str(record.failure)
            host.logger.error(
                "plugin does not serve", plugin=record.installed.label, state=record.state.value, reason=reason, **trace
            )


def _fail_for_stores(registry: Registry, stores: Stores) -> bool:
    """Fail the plugins with a store that can't be opened. Return whether there were any."""
    failed = [record for record in registry.active() if record.name in stores.failures]
    for record in failed:
        cause = str(stores.failures[record.name]).removeprefix("store ").rstrip(".")
        registry.fail(record, Failure("store", cause, "Mend that, then start or reload again."))
    return bool(failed)


def _warnings(host: HostState, registry: Registry, settings: Settings, sites: Iterable[str]) -> Iterator[str]:
    if host.exposed:
        yield (
            f"--dev on {', '.join(host.exposed)}, which others can reach: there are no demo users, no console and no"
            " Swagger UI; listen on 127.0.0.1 to have them"
        )
    yield from audit_warnings(settings)
    installed = [record.name for record in registry]
    yield from settings.unknown_plugins(installed)
    models = {record.name: record.settings_model for record in registry}
    unread = [each.name for each in registry if each.settings_model is None and each.state is not State.ACTIVE]
    yield from settings.unknown_variables(models, unread)
    for name in (*settings.host.disabled, *host.without):
        if name not in installed:
            meant = did_you_mean(name, installed, PLUGINS_LISTER)
            yield f"{name} is to be skipped, and no plugin of this name is installed{meant}"
    stores = sorted(store.name for record in registry for store in record.declared.stores)
    known = {*stores, *(name.replace("-", "_") for name in stores)}  # the latter in environment variables
    for key in ("urls", "tuning"):
        for name in sorted(getattr(settings.host.stores, key).keys() - known):
            meant = did_you_mean(name, stores)
            yield f"stores.{key} names {name}, and no plugin that serves has a store of this name{meant}"
    for name in sites:
        site: SiteSettings = getattr(settings.host.sites, name)
        address = site.address or settings.host.address
        if not site.allowed_hosts and not is_loopback(address):
            yield (
                f"the site {name} is reached from elsewhere ({address}) and answers whatever Host a request names;"
                f" set sites.{name}.allowed_hosts to the names that it is reached by"
            )
        if site.client_ca is not None and "http" in site.listeners and not is_loopback(address):
            yield (
                f"the site {name} is reached from elsewhere ({address}) and over HTTP asks for no certificate of"
                f' sites.{name}.client_ca; set sites.{name}.listeners = ["https"]'
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
