"""Registration: import each plugin separately, and call its hooks for its settings model and its declarations."""

from __future__ import annotations

import inspect
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pluggy
from pydantic import BaseModel

from plughost._api.declarations import Check, Declarations, Middleware, Observer, Page, RouteGroup, Store
from plughost._api.errors import PluginError
from plughost._api.hookspecs import documented_hooks
from plughost._api.jobs import Job
from plughost._plugins.failures import Failure
from plughost._plugins.signatures import require_plain
from plughost._plugins.validation import check, require_idempotency_store
from plughost._settings.errors import SettingsError, did_you_mean
from plughost._settings.models import MountSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plughost._plugins.registry import PluginRecord, Registry
    from plughost._settings.sources import Settings
    from plughost.stores import OpenStore

T = TypeVar("T")
_EARLY_HOOKS: Final = ("register_settings", "register_stores", "register_authenticator")
_HOOKS: Final[Mapping[str, tuple[str, type]]] = {
    "register_middleware": ("middleware", Middleware),
    "register_routes": ("groups", RouteGroup),
    "register_observers": ("observers", Observer),
    "register_checks": ("checks", Check),
    "register_jobs": ("jobs", Job),
    "register_pages": ("pages", Page),
}


def load(registry: Registry) -> None:
    """Import all active plugins that are not reused, and register the hooks of all."""
    for record in registry:
        if record.reused:
            registry.manager.register(record.plugin, name=record.name)
        else:
            plugin = registry.attempt(record, "import", _import, record)
            registry.attempt(record, "import", _register, record, registry.manager, plugin)


def _declare_again(record: PluginRecord, registry: Registry, last_hook: str) -> None:
    """Replace a plugin by a new instance, if its entry point is a class, and call its hooks up to `last_hook` again.

    The old instance still serves the running generation, so its hooks must not be called again. A module stays. What
    the hooks return was processed before.
    """
    if record.reused:  # earlier troubles and times are dropped
        record.reused, record.trouble, record.seconds = False, [], {}
    record.declared = Declarations(stores=record.declared.stores)
    plugin = registry.attempt(record, "import", _import, record)
    if plugin is not record.plugin and record.failure is None:
        registry.manager.unregister(record.plugin)
        registry.attempt(record, "import", _register, record, registry.manager, plugin)
    for hook in _EARLY_HOOKS[: _EARLY_HOOKS.index(last_hook) + 1]:
        if hook in record.hooks and record.failure is None:
            registry.attempt(record, hook, registry.call, record, hook)


def _import(record: PluginRecord) -> Any:
    """Return the plugin's module or object. A timed-out import may still finish, so this registers nothing."""
    point = record.installed.entry_point
    if not point.pattern.match(point.value):
        raise _entry_point_error(record, "that is no name of a module")
    try:
        plugin = point.load()
    except ModuleNotFoundError as error:
        if error.name and f"{point.module}.".startswith(f"{error.name}."):
            raise _entry_point_error(record, f"there is no module {error.name}") from error
        raise
    except AttributeError as error:
        module = sys.modules.get(point.module)
        if module is not None and error.obj is module:
            raise _entry_point_error(record, f"{point.module} has no {error.name}") from error
        raise
    return plugin() if inspect.isclass(plugin) else plugin


def _entry_point_error(record: PluginRecord, reason: str) -> PluginError:
    installed = record.installed
    return PluginError(
        f"its entry point leads to {installed.entry_point.value}, and {reason}",
        f"Point it at a module of {installed.distribution}, or at an object there, and install that again.",
    )


def _register(record: PluginRecord, manager: pluggy.PluginManager, plugin: Any) -> None:
    try:
        hash(plugin)  # pluggy keeps plugins in sets: an unhashable one would break the calls of all others
    except TypeError:
        raise PluginError(
            f"its {type(plugin).__name__} object has no hash",
            "Point the entry point at a module, or at an object whose class defines no __eq__.",
        ) from None
    if manager.is_registered(plugin):
        raise _entry_point_error(record, f"that is the plugin {manager.get_name(plugin)} already")
    found = ((name, manager.parse_hookimpl_opts(plugin, name)) for name in dir(plugin))
    implementations = [
        (options["specname"] or name, pluggy.HookImpl(plugin, record.name, getattr(plugin, name), options))
        for name, options in found
        if options is not None
    ]
    _check_hooks(manager, plugin, implementations)
    try:
        manager.register(plugin, name=record.name)
    except (pluggy.PluginValidationError, ValueError) as error:
        advice = "Compare the hook with plughost's hook reference, and the versions of both."
        raise PluginError(" ".join(str(error).split()), advice) from error
    record.plugin = plugin
    record.hooks = tuple(sorted({hook for hook, _ in implementations}))


def _check_hooks(
    manager: pluggy.PluginManager, plugin: Any, implementations: Sequence[tuple[str, pluggy.HookImpl]]
) -> None:
    """Refuse a plugin without hooks, unknown hooks and arguments, and async hooks, which would return before they run.

    Pluggy's own messages are less clear.
    """
    if not implementations:
        raise PluginError(
            "it implements no hook",
            "Mark its hook implementations with @plughost.hookimpl, and point the entry point at their module.",
        )
    module = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__module__
    hooks = documented_hooks().keys()
    for hook, each in implementations:
        if hook not in hooks:
            if each.optionalhook:
                continue
            suggestion = did_you_mean(hook, sorted(hooks - {hook for hook, _ in implementations}))
            raise PluginError(
                f"its module {module} has a hook {hook}, and plughost has none of this name{suggestion}",
                "Rename it, or take @hookimpl off.",
            )
        expected_arguments, actual_arguments = getattr(manager.hook, hook).spec.argnames, each.argnames
        if not set(actual_arguments) <= set(expected_arguments):
            raise PluginError(
                f"the hook {hook} of its module {module} takes ({', '.join(actual_arguments)})",
                f"Write it as {hook}({', '.join(expected_arguments)}): arguments are given by name.",
            )
        if inspect.iscoroutinefunction(each.function) or inspect.isasyncgenfunction(each.function):
            raise PluginError(
                f"its hook {each.function.__name__} is async, and hooks are called without an event loop",
                "Use plain def.",
            )


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
        values, mount = (
            settings.plugin_settings(record.name, model),
            settings.plugin_settings(record.name, MountSettings),
        )
    except SettingsError as error:
        raise PluginError("; ".join(error.problems), f"Mend the table [plugins.{record.name}].") from None
    if model is _NoSettings:
        values = None
    if record.reused and (values, mount) != (record.settings, record.mount):
        _declare_again(record, registry, "register_settings")
    record.settings, record.mount = values, mount


def declare_stores(registry: Registry) -> None:
    """Collect the stores that plugins declare."""
    _collect(registry, "register_stores", "stores", Store)


def set_stores(registry: Registry, stores: Mapping[str, OpenStore[Any]]) -> None:
    """Set the stores that each plugin may use: its own, and those of the plugins that it requires."""
    for record in registry.active():
        offering = {record.name, *record.installed.requires}
        usable = {name: store for name, store in stores.items() if store.plugin in offering}
        if usable != record.context.stores:
            update_context(registry, record, "register_stores", stores=usable)


def declare_authenticator(registry: Registry) -> None:
    """Find the authenticator, and set it in all plugins' contexts."""

    def process(record: PluginRecord) -> None:
        authenticator = registry.call(record, "register_authenticator")
        if authenticator is not None and not callable(authenticator):
            raise PluginError(f"it returned {authenticator!r}", "Return a callable that takes a request.")
        require_plain(authenticator, "the authenticator")
        record.authenticator = authenticator

    _call_hook(registry, "register_authenticator", process)
    offering = [record for record in registry.active() if record.authenticator is not None]
    for record in offering[1:]:
        cause = f"{offering[0].installed.label} is the authenticator already"
        registry.fail(record, Failure("conflict", cause, "Disable one of the two plugins."))
    authenticator = offering[0].authenticator if offering else None
    for record in registry.active():
        update_context(registry, record, "register_authenticator", authenticator=authenticator)


def withdraw_authenticator(registry: Registry) -> bool:
    """Remove the authenticator from all contexts if its plugin has failed since.

    If it returns True, the plugins that had it must declare again.
    """
    if any(record.authenticator is not None for record in registry.active()):
        return False
    holders = [record for record in registry.active() if record.context.authenticator is not None]
    for record in holders:
        update_context(registry, record, "register_authenticator", has_declared=True, authenticator=None)
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
    items = tuple(declared)
    for item in items:
        if not isinstance(item, kind):
            raise PluginError(f"it returned a {type(item).__name__}", f"Return a list of {kind.__name__}.")
    return items


def _call_hook(registry: Registry, hook: str, process: Callable[[PluginRecord], None]) -> None:
    """Let `process` call a hook of each plugin that has it and is not reused, and process the result."""
    for record in registry.active():
        if hook in record.hooks and not record.reused:
            registry.attempt(record, hook, process, record)


def update_context(
    registry: Registry, record: PluginRecord, last_hook: str, *, has_declared: bool = False, **changes: Any
) -> None:
    """Change fields of a plugin's context.

    If the plugin was to be reused, or has declared, a new instance gets a new context and all hooks up to `last_hook`.
    """
    if all(getattr(record.context, name) is value for name, value in changes.items()):
        return
    if record.reused or has_declared:
        record.context = replace(record.context, announcements=[], logins={}, queries={}, **changes)
        _declare_again(record, registry, last_hook)
    else:
        for name, value in changes.items():  # known only now that other plugins' hooks have returned
            object.__setattr__(record.context, name, value)


class _NoSettings(BaseModel):
    """The model of a plugin without settings of its own: it accepts none."""
