"""Build a generation: load what is installed, collect its declarations, and migrate its stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from plughost._api.context import PluginContext
from plughost._apps.application import SiteApp, build_site_apps
from plughost._optional import ZSTD, LibraryError, import_optional
from plughost._plugins import conflicts, registration
from plughost._plugins.failures import Failure
from plughost._plugins.registry import State
from plughost._runtime.audit import audit_warnings
from plughost._runtime.generation import Generation
from plughost._settings.errors import PLUGINS_LISTER, did_you_mean
from plughost.http._request import is_loopback
from plughost.ratelimits import RateLimits
from plughost.ratelimits._windows import refused_by_client
from plughost.stores._config import variable_name
from plughost.stores._manager import Stores, migrate_stores, prepare_stores, try_stores

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment
    from plughost._plugins.registry import Registry
    from plughost._runtime.state import HostState
    from plughost._settings.models import HostSettings, SiteSettings
    from plughost._settings.sources import Settings


def build(host: HostState, environment: Environment, registry: Registry, settings: Settings) -> Generation:
    """Build the generation after that of the host, without opening a port or a store. See `migrate`.

    Its registry says why plugins do not serve. Unchanged stores of the running generation are reused.
    """
    running = host.generation
    registration.load(registry)
    registration.validate_settings(registry, settings)
    rate_limits = set_contexts(host, registry, settings, settings.host.trusted)
    registration.declare_stores(registry)
    conflicts.find_conflicts(registry)
    declared = {record.name: record.declared.stores for record in registry.active() if record.declared.stores}
    stores = prepare_stores(declared, settings.stores, running.stores, host.logger, host.events)
    _fail_for_stores(registry, stores)
    registration.set_stores(registry, stores)
    registration.declare_authenticator(registry)
    registration.declare(registry)
    sites = _build_sites(host, registry, settings)
    _log_failures(host, registry)
    warnings = _warnings(host, registry, settings, sites)
    return Generation(
        number=running.number + 1,
        settings=settings,
        registry=registry,
        stores=stores.of(record.name for record in registry.active()),
        rate_limits=rate_limits,
        sites=sites,
        warnings=(*warnings, *environment.warnings),
        problems=tuple(_library_problems(settings.host)),
    )


def set_contexts(host: HostState, registry: Registry, settings: Settings, trusted: Collection[str]) -> RateLimits:
    """Set the context of each plugin; a reused one keeps its own.

    Return their rate limits: those of the running generation, if they still fit.
    """
    if any(_library_problems(settings.host)):  # then no host serves, and for a command, to count in memory suffices
        rate_limits = RateLimits()
    elif host.generation.rate_limits.settings == settings.host.rate_limits:
        rate_limits = host.generation.rate_limits
    else:
        rate_limits = RateLimits(settings.host.rate_limits, host.logger)
    for record in registry.active():
        is_trusted = record.name in trusted
        if record.reused:
            registration.update_context(
                registry, record, "register_settings", rate_limits=rate_limits, trusted=is_trusted
            )
            continue
        record.context = PluginContext(
            plugin=record.name,
            settings=record.settings,
            dev=host.dev and not host.exposed,
            logger=host.logger.bind(plugin=record.name),
            data_root=settings.data_dir,
            services=host.view,
            trusted=is_trusted,
            rate_limits=rate_limits,
            audits=host.audit,
        )
    return rate_limits


def migrate(host: HostState, generation: Generation) -> Generation:
    """Migrate the stores of a generation, unseen by others: `Stores.open` commits it, `Generation.close` undoes it.

    The generation returned lacks the plugins whose stores can't be migrated.
    """
    return _with_stores(host, generation, migrate_stores(generation.stores, host.generation.stores))


def rehearse(host: HostState, generation: Generation) -> Generation:
    """Test whether the stores of a generation could be migrated and opened. See `migrate`."""
    return _with_stores(host, generation, try_stores(generation.stores))


def _with_stores(host: HostState, generation: Generation, stores: Stores) -> Generation:
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
        stores.close(host.generation.stores)
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
    folder = settings.path(settings.host.plugins_dir)
    if host.dev and folder is not None and not folder.is_dir():
        yield f"plugins_dir: there is no folder {folder}"
    elif host.exposed and folder is not None:
        yield f"plugins_dir: its files are not served while others can reach {' and '.join(host.exposed)}"
    yield from audit_warnings(settings)
    installed = [record.name for record in registry]
    yield from settings.unknown_plugins(installed)
    models = {record.name: record.settings for record in registry}
    unread = [each.name for each in registry if each.settings is None and each.state is not State.ACTIVE]
    yield from settings.unknown_variables(models, unread)
    for name in (*settings.host.disabled, *host.without):
        if name not in installed:
            meant = did_you_mean(name, installed, PLUGINS_LISTER)
            yield f"{name} is to be skipped, and no plugin of this name is installed{meant}"
    stores = sorted(store.name for record in registry for store in record.declared.stores)
    known = {*stores, *map(variable_name, stores)}
    for key in ("urls", "tuning"):
        for name in sorted(getattr(settings.host.stores, key).keys() - known):
            meant = did_you_mean(name, stores)
            yield f"stores.{key} names {name}, and no plugin that serves has a store of this name{meant}"
    yield from _site_warnings(settings, sites)


def _site_warnings(settings: Settings, sites: Iterable[str]) -> Iterator[str]:
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


def _library_problems(host: HostSettings) -> Iterator[str]:
    """Yield a sentence for each setting of the host that needs a library which can't be used, or refuses it."""
    if host.rate_limits.shared:
        missing = list(_library_problem("rate_limits.storage", "redis", "redis"))
        yield from missing
        if not missing and (refusal := refused_by_client(host.rate_limits.storage.get_secret_value())):
            yield f"rate_limits.storage: the client of Redis refuses the URL: {refusal}"
    for site, table in host.sites:
        if "zstd" in table.compression.encodings:
            yield from _library_problem(f"sites.{site}.compression.encodings", ZSTD, "compression")


def _library_problem(setting: str, module: str, extra: str) -> Iterator[str]:
    try:
        import_optional(module, extra=extra)
    except LibraryError as error:
        yield f"{setting}: {error}"
