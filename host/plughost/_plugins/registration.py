"""Registration: call each plugin's hooks for its settings model and its declarations."""

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
from plughost._plugins.loader import reinstantiate
from plughost._plugins.validation import check, require_idempotency_store, require_sync
from plughost._settings.errors import SettingsError
from plughost._settings.models import MountSettings

if TYPE_CHECKING:
    import structlog

    from plughost._plugins.registry import PluginRecord, Registry
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
    """Validate each plugin's table with the plugin's own model. A reused one with other settings declares again."""
    for record in registry.active():
        registry.attempt(record, "register_settings", _validate_plugin_settings, record, registry, settings)


def _validate_plugin_settings(record: PluginRecord, registry: Registry, settings: Settings) -> None:
    model: Any = _NoSettings
    if "register_settings" in record.hooks:
        model = registry.call(record, "register_settings")
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise PluginError(f"it returned {model!r}", "Return the pydantic model class of the plugin's settings.")
        reserved = sorted(set(MountSettings.model_fields) & set(model.model_fields))
        if reserved:
            where = f"the settings model {model.__name__} has a field {reserved[0]}"
            raise PluginError(f"{where}, which is the host's: give it another name")
    try:
        values, mount = settings.plugin_settings(record.name, model), settings.mount_settings(record.name)
    except SettingsError as error:
        raise PluginError("; ".join(error.problems), f"Mend the table [plugins.{record.name}].") from None
    if model is _NoSettings:
        model, values = None, None
    if record.reused and (values, mount) != (record.settings, record.mount):
        reinstantiate(record, registry)
    record.settings_model, record.settings, record.mount = model, values, mount


def set_contexts(
    registry: Registry,
    *,
    logger: structlog.stdlib.BoundLogger,
    rate_limits: RateLimits,
    trusted: Collection[str],
    **common: Any,
) -> None:
    """Set the context of each plugin, with `common` fields. A reused one keeps its own."""
    for record in registry.active():
        is_trusted = record.name in trusted
        if record.reused:
            _update_context(registry, record, rate_limits=rate_limits, trusted=is_trusted)
            continue
        own = {"plugin": record.name, "settings": record.settings, "logger": logger.bind(plugin=record.name)}
        record.context = PluginContext(**own, **common, rate_limits=rate_limits, trusted=is_trusted)


def declare_stores(registry: Registry) -> None:
    """Collect the stores that plugins declare."""
    _collect(registry, "register_stores", "stores", Store)


def set_stores(registry: Registry, stores: Mapping[str, OpenStore[Any]]) -> None:
    """Set the stores that each plugin may use: its own, and those of the plugins that it requires."""
    for record in registry.active():
        offering = {record.name, *record.installed.requires}
        usable = {name: store for name, store in stores.items() if store.plugin in offering}
        if usable != record.context.stores:
            _update_context(registry, record, stores=usable)


def declare_authenticator(registry: Registry) -> None:
    """Find the authenticator, and set it in all plugins' contexts."""

    def process(record: PluginRecord) -> None:
        authenticator = registry.call(record, "register_authenticator")
        if authenticator is not None and not callable(authenticator):
            raise PluginError(f"it returned {authenticator!r}", "Return a callable that takes a request.")
        require_sync(authenticator, "the authenticator")
        record.authenticator = authenticator

    _call_hook(registry, "register_authenticator", process)
    offering = [record for record in registry.active() if record.authenticator is not None]
    for record in offering[1:]:
        cause = f"{offering[0].installed.label} is the authenticator already"
        registry.fail(record, Failure("conflict", cause, "Disable one of the two plugins."))
    authenticator = offering[0].authenticator if offering else None
    for record in registry.active():
        _update_context(registry, record, authenticator=authenticator)


def withdraw_authenticator(registry: Registry) -> bool:
    """Remove the authenticator from all contexts if its plugin has failed since.

    If it returns True, the plugins that had it must declare again.
    """
    if any(record.authenticator is not None for record in registry.active()):
        return False
    holders = [record for record in registry.active() if record.context.authenticator is not None]
    for record in holders:
        _update_context(registry, record, has_declared=True, authenticator=None)
    return bool(holders)


def declare(registry: Registry) -> None:
    """Collect the other declarations: middleware, route groups, observers, checks, jobs and pages."""
    for hook, (attribute, kind) in _HOOKS.items():
        _collect(registry, hook, attribute, kind)


def _collect(registry: Registry, hook: str, attribute: str, kind: type) -> None:
    def process(record: PluginRecord) -> None:
        items: tuple[Any, ...] = require_items(kind, registry.call(record, hook))
        for item in items:
            check(item)
            require_idempotency_store(item, record.name, record.context.stores)
        record.declared = replace(record.declared, **{attribute: items})

    _call_hook(registry, hook, process)


def require_items(kind: type[T], declared: object) -> tuple[T, ...]:
    """Return the items that a hook returned. Refuse what is not iterable, and an item of another type."""
    if not isinstance(declared, Iterable):
        raise PluginError(f"it returned {reprlib.repr(declared)}", f"Return a list of {kind.__name__}.")
    items = []
    for item in declared:
        if not isinstance(item, kind):
            raise PluginError(f"it returned a {type(item).__name__}", f"Return a list of {kind.__name__}.")
        items.append(item)
    return tuple(items)


def _call_hook(registry: Registry, hook: str, process: Callable[[PluginRecord], None]) -> None:
    """Let `process` call a hook of each plugin that has it and is not reused, and process the result."""
    for record in registry.active():
        if hook in record.hooks and not record.reused:
            registry.attempt(record, hook, process, record)


def _update_context(registry: Registry, record: PluginRecord, *, has_declared: bool = False, **changes: Any) -> None:
    """Change fields of a plugin's context. A plugin that has declared already is reinstantiated, to declare again."""
    if all(getattr(record.context, name) is value for name, value in changes.items()):
        return
    if record.reused or has_declared:
        changes |= {"announcements": [], "logins": {}, "queries": {}}
        registry.attempt(record, "import", reinstantiate, record, registry)
    record.context = replace(record.context, **changes)


class _NoSettings(BaseModel):
    """The model of a plugin without settings of its own: it accepts none."""
