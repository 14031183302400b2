"""Load: import each plugin on its own and register it with its generation's plugin manager."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pluggy

from plughost._api import hookspecs
from plughost._api.errors import PluginError

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
    plugin = entry.installed.entry_point.load()
    return plugin() if inspect.isclass(plugin) else plugin


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
        advice = "Compare the hook with plughost's hook reference, and the versions of both."
        if manager.has_plugin(entry.name):
            advice = _nearest_hooks(manager.get_hookcallers(plugin) or []) or advice
            manager.unregister(name=entry.name)
        raise PluginError(" ".join(str(error).split()), advice) from error
    callers = manager.get_hookcallers(plugin) or []
    try:
        _check_hooks(impl for caller in callers for impl in caller.get_hookimpls() if impl.plugin is plugin)
    except PluginError:
        manager.unregister(plugin)
        raise
    entry.plugin = plugin
    entry.hooks = tuple(sorted(caller.name for caller in callers))


def _nearest_hooks(callers: Iterable[pluggy.HookCaller]) -> str:
    """Return which hooks unknown ones may be meant to be. Empty where none is similar."""
    known = [caller.name for caller in callers if caller.has_spec()]
    unknown = [caller.name for caller in callers if not caller.has_spec()]
    hooks = [name for name, each in vars(hookspecs).items() if hasattr(each, f"{hookspecs.PROJECT}_spec")]
    near = [(name, get_close_matches(name, set(hooks) - set(known), n=1)) for name in unknown]
    return " ".join(f"Is {name} meant to be {close[0]}?" for name, close in near if close)


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
