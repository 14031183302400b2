"""Load: import each plugin on its own and register it with its generation's plugin manager."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

import pluggy

from plughost._api import hookspecs
from plughost._api.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plughost._plugins.registry import Entry, Registry


def new_manager() -> pluggy.PluginManager:
    """Return a plugin manager that knows the hooks and no plugin."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def load(registry: Registry, manager: pluggy.PluginManager) -> None:
    """Import every active plugin of the registry that is not reused, and register all their hooks."""
    for entry in registry:
        if entry.reused:
            manager.register(entry.plugin, name=entry.name)
        else:
            plugin = registry.attempt(entry, "import", partial(_import, entry))
            registry.attempt(entry, "import", partial(_register, entry, manager, plugin))


def call_hooks(
    registry: Registry,
    manager: pluggy.PluginManager,
    hook: str,
    take: Callable[[Entry, Any], None],
    *,
    unless_reused: bool = False,
) -> None:
    """Ask each active plugin that implements a hook, one bounded call each.

    Args:
        registry: The plugins.
        manager: The manager that they are registered with.
        hook: The hook's name.
        take: Called with the plugin and what its hook returned. Raising fails the plugin.
        unless_reused: Leave out the plugins that are reused.
    """
    for entry in registry.active():
        if hook in entry.hooks and not (unless_reused and entry.reused):
            registry.attempt(
                entry,
                hook,
                lambda entry=entry: take(entry, call_hook(manager, entry, hook)),  # type: ignore[misc] # see load
            )


def call_hook(manager: pluggy.PluginManager, entry: Entry, hook: str) -> Any:
    """Call one plugin's implementation of a hook, and nobody else's.

    Returns:
        What the implementation returned. None where it has none.
    """
    arguments = {} if hook in hookspecs.WITHOUT_CONTEXT else {"context": entry.context}
    others = [plugin for plugin in manager.get_plugins() if plugin is not entry.plugin]
    results = manager.subset_hook_caller(hook, others)(**arguments)
    return results[0] if results else None


def renew(entry: Entry, manager: pluggy.PluginManager) -> None:
    """Replace a plugin by a new instance, if its entry point is a class. A module stays.

    The old instance serves until the next generation is swapped in, so its hooks must not be called again.
    """
    plugin = _import(entry)
    if plugin is not entry.plugin:
        manager.unregister(entry.plugin)
        _register(entry, manager, plugin)


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
