"""Reuse: which plugins of the running generation are reused, and which are imported afresh."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from plughost._plugins.distributions import Snapshot, unload
from plughost._plugins.environment import HOST
from plughost._plugins.registry import Registry, State

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment


def restart_reasons(
    now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot], shared: Collection[str]
) -> tuple[str, ...]:
    """Return why this process can't serve the changed distributions, so that a restart is needed.

    Python can't import compiled modules twice, and a running host can't replace its own requirements (`shared`).
    Without the host's own distribution, its environment is gone, with all plugins: another Python made it anew.
    """
    if HOST in imported and HOST not in now:
        return (f"{HOST} can't be found any more: its environment was removed or made anew",)
    return tuple(
        f"{imported[key].name} changed from {imported[key].version} to {now[key].version} on disk, "
        + ("and the host itself runs on it" if key in shared else "and it brings compiled modules")
        for key in sorted(_changed(now, imported))
        if key in shared or now[key].compiled or imported[key].compiled
    )


def reuse_unchanged(
    registry: Registry, running: Registry, environment: Environment, imported: Mapping[str, Snapshot]
) -> Callable[[], None]:
    """Reuse unchanged plugins. Unload the code of changed distributions, and of those that import them.

    The function returned puts the unloaded modules back, if the next generation is refused.
    """
    outdated = _outdated(environment, imported_snapshots(registry, environment), imported)
    for record in registry.active():
        previous = running.get(record.name)
        if previous is None or previous.state is not State.ACTIVE or record.installed.closure & outdated:
            continue
        if previous.installed.distribution == record.installed.distribution:
            registry.reuse(record, previous)
    return unload([*environment.snapshots(outdated).values(), *(imported[key] for key in outdated & imported.keys())])


def imported_snapshots(registry: Registry, environment: Environment) -> dict[str, Snapshot]:
    """Return snapshots of the distributions that a generation is about to import, and of the host's own.

    Take them before the import: the next reload then imports what was saved meanwhile.
    """
    return environment.snapshots(environment.shared.union(*(each.installed.closure for each in registry.active())))


def unload_removed(previous: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """Unload the modules of distributions that no plugin needs any more. Return those that stay imported.

    Compiled modules stay. A later replacement needs a restart.
    """
    compiled = {key: each for key, each in previous.items() if each.compiled}
    unload([each for key, each in previous.items() if key not in after and key not in compiled])
    return {**compiled, **after}


def _changed(now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot]) -> set[str]:
    """Return the distributions that have changed since this process imported them."""
    return {key for key, each in now.items() if key in imported and imported[key].fingerprint != each.fingerprint}


def _outdated(
    environment: Environment, now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot]
) -> frozenset[str]:
    """Return the changed distributions, and all that require or import them, directly or indirectly.

    Imports count, too, since authors forget to declare requirements.
    """
    new = _changed(now, imported)
    if not new:  # as at most reloads; to look for the modules' owners takes long
        return frozenset()
    outdated: set[str] = set()
    modules = {name: module for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)}
    own_modules = {
        key: {name: module for name, module in modules.items() if each.owns(module)}
        for key, each in imported.items()
        if key not in environment.shared
    }
    while new:
        outdated |= new
        names = {name for key in outdated for name in own_modules.get(key, ())}
        requiring = environment.dependents(outdated).keys() & now.keys()
        importing = {
            key
            for key in own_modules.keys() - outdated
            if any(_module_imports(each, names) for each in own_modules[key].values())
        }
        new = (requiring | importing) - outdated
    return frozenset(outdated)


def _module_imports(module: ModuleType, names: Collection[str]) -> bool:
    if any(isinstance(each, ModuleType) and each.__name__ in names for each in list(vars(module).values())):
        return True
    top_packages = {name.partition(".")[0] for name in names}
    try:
        source = Path(module.__file__ or "").read_bytes()
        # Parse only candidates, to save time. In the same top package, imports can be relative.
        may_be_relative = module.__name__.partition(".")[0] in top_packages
        if not may_be_relative and not any(name.encode() in source for name in top_packages):
            return False
        return any(name in names for name in _imported_names(ast.parse(source), module))
    except (OSError, SyntaxError, ValueError):
        return False


def _imported_names(tree: ast.AST, module: ModuleType) -> Iterator[str]:
    """Yield the names that a module's import statements may import, at any level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # it can't work, such as a relative import outside of a package
                base = resolve_name("." * node.level + (node.module or ""), module.__package__)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
