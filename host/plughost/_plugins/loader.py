"""Loading: import each plugin separately, and register it with the generation's plugin manager."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import pluggy

from plughost._api.errors import PluginError
from plughost._api.hookspecs import documented_hooks
from plughost._settings.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plughost._plugins.registry import PluginRecord, Registry


def load(registry: Registry) -> None:
    """Import all active plugins that are not reused, and register the hooks of all."""
    for record in registry:
        if record.reused:
            registry.manager.register(record.plugin, name=record.name)
        else:
            plugin = registry.attempt(record, "import", _import, record)
            registry.attempt(record, "import", _register, record, registry.manager, plugin)


def reinstantiate(record: PluginRecord, registry: Registry) -> None:
    """Replace a plugin by a new instance, if its entry point is a class. A module stays.

    The old instance still serves the running generation, so its hooks must not be called again.
    """
    if record.reused:  # its hooks are called again, so earlier troubles and times are dropped
        record.reused, record.trouble, record.seconds = False, [], {}
    plugin = _import(record)
    if plugin is not record.plugin:
        registry.manager.unregister(record.plugin)
        _register(record, registry.manager, plugin)


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
