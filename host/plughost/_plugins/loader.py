"""Load: import each plugin on its own and register it with its generation's plugin manager."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import pluggy

from plughost._api.errors import PluginError
from plughost._api.hookspecs import documented_hooks
from plughost._settings.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plughost._plugins.registry import Entry, Registry


def load(registry: Registry) -> None:
    """Import every active plugin of the registry that is not reused, and register all their hooks."""
    for entry in registry:
        if entry.reused:
            registry.manager.register(entry.plugin, name=entry.name)
        else:
            plugin = registry.attempt(entry, "import", _import, entry)
            registry.attempt(entry, "import", _register, entry, registry.manager, plugin)


def renew(entry: Entry, registry: Registry) -> None:
    """Replace a plugin by a new instance, if its entry point is a class. A module stays.

    The old instance serves until the next generation is swapped in, so its hooks must not be called again.
    """
    plugin = _import(entry)
    if plugin is not entry.plugin:
        registry.manager.unregister(entry.plugin)
        _register(entry, registry.manager, plugin)


def _import(entry: Entry) -> Any:
    """Return the plugin's module or object. A timed-out import may still finish, so this registers nothing."""
    point = entry.installed.entry_point
    if not point.pattern.match(point.value):
        raise _astray(entry, "that is no name of a module")
    try:
        plugin = point.load()
    except ModuleNotFoundError as error:
        if error.name and f"{point.module}.".startswith(f"{error.name}."):
            raise _astray(entry, f"there is no module {error.name}") from error
        raise
    except AttributeError as error:
        module = sys.modules.get(point.module)
        if module is not None and error.obj is module:
            raise _astray(entry, f"{point.module} has no {error.name}") from error
        raise
    return plugin() if inspect.isclass(plugin) else plugin


def _astray(entry: Entry, why: str) -> PluginError:
    found = entry.installed
    return PluginError(
        f"its entry point leads to {found.entry_point.value}, and {why}",
        f"Point it at a module of {found.distribution}, or at an object there, and install that again.",
    )


def _register(entry: Entry, manager: pluggy.PluginManager, plugin: Any) -> None:
    try:
        hash(plugin)  # pluggy keeps plugins in sets: one without a hash would break the calls of all others
    except TypeError:
        raise PluginError(
            f"its {type(plugin).__name__} object has no hash",
            "Point the entry point at a module, or at an object whose class defines no __eq__.",
        ) from None
    try:
        manager.register(plugin, name=entry.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.has_plugin(entry.name):
            manager.unregister(name=entry.name)
        _check_signatures(manager, plugin)
        advice = "Compare the hook with plughost's hook reference, and the versions of both."
        raise PluginError(" ".join(str(error).split()), advice) from error
    callers = manager.get_hookcallers(plugin) or []
    try:
        _check_hooks(impl for caller in callers for impl in caller.get_hookimpls() if impl.plugin is plugin)
    except PluginError:
        manager.unregister(plugin)
        raise
    entry.plugin = plugin
    entry.hooks = tuple(sorted(caller.name for caller in callers))


def _check_signatures(manager: pluggy.PluginManager, plugin: Any) -> None:
    """Refuse hooks that there are none of, and arguments that a hook is not called with, clearer than pluggy."""
    hooks = documented_hooks()
    found = ((name, manager.parse_hookimpl_opts(plugin, name)) for name in dir(plugin))
    marked = {name: options for name, options in found if options is not None}
    own = {name: options.get("specname") or name for name, options in marked.items()}
    module = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__module__
    for name, hook in own.items():
        if hook not in hooks:
            meant = did_you_mean(hook, sorted(set(hooks) - set(own.values())))
            raise PluginError(
                f"its module {module} has a hook {hook}, and plughost has none of this name{meant}",
                "Rename it, or take @hookimpl off.",
            )
        known = getattr(manager.hook, hook).spec.argnames
        given = pluggy.HookImpl(plugin, name, getattr(plugin, name), marked[name]).argnames
        if not set(given) <= set(known):
            wrong = f"the hook {hook} of its module {module} takes ({', '.join(given)})"
            advice = f"Write it as {hook}({', '.join(known)}): arguments are given by name."
            raise PluginError(wrong, advice)


def _check_hooks(implementations: Iterable[pluggy.HookImpl]) -> None:
    """Refuse a plugin without hooks, and one whose hooks would return before anything in them has run."""
    functions = [each.function for each in implementations]
    if not functions:
        raise PluginError(
            "it implements no hook",
            "Mark its hook implementations with @plughost.hookimpl, and point the entry point at their module.",
        )
    for function in functions:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise PluginError(
                f"its hook {function.__name__} is async, and hooks are called without an event loop", "Use plain def."
            )
