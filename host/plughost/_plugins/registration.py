"""Declare: ask each plugin, hook by hook, for its settings model and its declarations."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel

from plughost._api.context import PluginContext
from plughost._api.declarations import Check, Middleware, Observer, Page, RouteGroup, Store
from plughost._api.errors import PluginError
from plughost._api.jobs import Job
from plughost._plugins.failures import Failure
from plughost._plugins.loader import renew
from plughost._plugins.validation import check, require_idempotency_store, require_sync
from plughost._settings.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    import structlog

    from plughost._api.host import HostServices
    from plughost._plugins.registry import Entry, Registry
    from plughost._runtime.audit import Audit
    from plughost._settings.sources import Settings
    from plughost.ratelimits import RateLimits
    from plughost.stores import OpenStore

T = TypeVar("T")

_HOOKS: Final[Mapping[str, tuple[str, type]]] = {
    "register_middleware": ("middleware", Middleware),
    "register_routes": ("groups", RouteGroup),
    "register_observers": ("observers", Observer),
    "register_checks": ("checks", Check),
    "register_jobs": ("jobs", Job),
    "register_pages": ("pages", Page),
}


def validate_settings(registry: Registry, settings: Settings) -> None:
    """Validate each plugin's table of the settings with the plugin's own model.

    A reused plugin whose settings differ from before is asked for its declarations again.
    """
    for entry in registry.active():
        registry.attempt(entry, "register_settings", _validate, entry, registry, settings)


def _validate(entry: Entry, registry: Registry, settings: Settings) -> None:
    model: Any = _NoSettings
    if "register_settings" in entry.hooks:
        model = registry.call(entry, "register_settings")
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise PluginError(f"it returned {model!r}", "Return the pydantic model class of the plugin's settings.")
    try:
        values, mount = settings.plugin_settings(entry.name, model), settings.mount_settings(entry.name)
    except SettingsError as error:
        raise PluginError("; ".join(error.problems), f"Mend the table [plugins.{entry.name}].") from None
    if model is _NoSettings:
        model, values = None, None
    if entry.reused and (values, mount) != (entry.settings, entry.mount):
        entry.change()
        renew(entry, registry)
    entry.settings_model, entry.settings, entry.mount = model, values, mount


def give_contexts(
    registry: Registry,
    *,
    data_root: Path,
    logger: structlog.stdlib.BoundLogger,
    rate_limits: RateLimits,
    view: HostServices,
    dev: bool,
    trusted: Collection[str],
    audits: Audit,
) -> None:
    """Give each plugin its context. A reused one keeps its own."""
    for entry in registry.active():
        is_trusted = entry.name in trusted
        if not entry.reused:
            entry.context = PluginContext(
                plugin=entry.name,
                settings=entry.settings,
                dev=dev,
                logger=logger.bind(plugin=entry.name),
                data_root=data_root,
                services=view,
                trusted=is_trusted,
                rate_limits=rate_limits,
                audits=audits,
            )
        elif entry.context.rate_limits is not rate_limits or entry.context.trusted is not is_trusted:
            _change(registry, entry, rate_limits=rate_limits, trusted=is_trusted)


def declare_stores(registry: Registry) -> None:
    """Collect the stores that plugins offer."""
    _collect(registry, "register_stores", "stores", Store)


def give_stores(registry: Registry, stores: Mapping[str, OpenStore[Any]]) -> None:
    """Give each plugin the stores that it may use: its own, and those of the plugins that it requires."""
    for entry in registry.active():
        offering = {entry.name, *entry.installed.requires}
        usable = {name: store for name, store in stores.items() if store.plugin in offering}
        if not (entry.reused and usable == entry.context.stores):
            _change(registry, entry, stores=usable)


def declare_authenticator(registry: Registry) -> None:
    """Find the plugin that names principals, and hand its callable to every other plugin."""

    def take(entry: Entry, authenticator: object) -> None:
        if authenticator is not None and not callable(authenticator):
            raise PluginError(f"it returned {authenticator!r}", "Return a callable that takes a request.")
        require_sync(authenticator, "the authenticator")
        entry.authenticator = authenticator

    _ask(registry, "register_authenticator", take)
    offering = [entry for entry in registry.active() if entry.authenticator is not None]
    for entry in offering[1:]:
        cause = f"{offering[0].installed.label} is the authenticator already"
        registry.fail(entry, Failure("conflict", cause, "Disable one of the two plugins."))
    authenticator = offering[0].authenticator if offering else None
    for entry in registry.active():
        if not (entry.reused and entry.context.authenticator is authenticator):
            _change(registry, entry, authenticator=authenticator)


def withdraw_authenticator(registry: Registry) -> bool:
    """Withdraw the authenticator of a plugin that has failed since it was handed out.

    Returns:
        Whether there was one: those that had it are without it now, and are to be asked for their declarations again.
    """
    active = registry.active()
    misled = [entry for entry in active if entry.context.authenticator is not None]
    if any(each.authenticator is entry.context.authenticator for entry in misled for each in active):
        return False
    for entry in misled:
        _change(registry, entry, asked=True, authenticator=None)
    return bool(misled)


def declare(registry: Registry) -> None:
    """Collect what plugins mount: middleware, route groups, observers, checks, jobs and pages."""
    for hook, (attribute, kind) in _HOOKS.items():
        _collect(registry, hook, attribute, kind)


def _collect(registry: Registry, hook: str, attribute: str, kind: type) -> None:
    def take(entry: Entry, declared: object) -> None:
        items: tuple[Any, ...] = all_of(kind, declared)
        for item in items:
            check(item)
            require_idempotency_store(item, entry.name, entry.context.stores)
        entry.declared = replace(entry.declared, **{attribute: items})

    _ask(registry, hook, take)


def all_of(kind: type[T], declared: object) -> tuple[T, ...]:
    """Return what a hook has returned that is to return several of a kind.

    Raises:
        PluginError: It is something else.
    """
    if not isinstance(declared, Iterable):
        raise PluginError(f"it returned {reprlib.repr(declared)}", f"Return a list of {kind.__name__}.")
    several = []
    for item in declared:
        if not isinstance(item, kind):
            raise PluginError(f"it returned a {type(item).__name__}", f"Return a list of {kind.__name__}.")
        several.append(item)
    return tuple(several)


def _ask(registry: Registry, hook: str, take: Callable[[Entry, Any], None]) -> None:
    """Call a hook of each plugin that has it and is not reused, and let `take` look at what it returned.

    What either raises fails the plugin.
    """

    def ask(entry: Entry) -> None:
        take(entry, registry.call(entry, hook))

    for entry in registry.active():
        if hook in entry.hooks and not entry.reused:
            registry.attempt(entry, hook, ask, entry)


def _change(registry: Registry, entry: Entry, *, asked: bool = False, **given: Any) -> None:
    """Give a plugin another context. One that has declared already is asked for its declarations again."""
    if entry.reused or asked:
        if entry.reused:
            entry.change()
        given |= {"announcements": [], "logins": {}}
        registry.attempt(entry, "import", renew, entry, registry)
    entry.context = replace(entry.context, **given)


class _NoSettings(BaseModel):
    """What a plugin without settings of its own accepts: nothing."""
