"""Reuse: which plugins of the running generation go on as they are, and which are imported afresh."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from plughost._plugins.registry import Registry, State
from plughost._plugins.snapshots import Snapshot, unload

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment


def restart_reasons(
    now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot], shared: Collection[str]
) -> tuple[str, ...]:
    """Return why what is to be imported now can't be served by this process. Empty where it can.

    Python can't import compiled modules twice, and a running host can't replace its own requirements, which are shared.
    """
    return tuple(
        f"{imported[key].name} changed from {imported[key].version} to {now[key].version} on disk, "
        + ("and the host itself runs on it" if key in shared else "and it brings compiled modules")
        for key in sorted(_stale(now, imported))
        if key in shared or now[key].compiled or imported[key].compiled
    )


def reuse_unchanged(
    registry: Registry, running: Registry, environment: Environment, imported: Mapping[str, Snapshot]
) -> Callable[[], None]:
    """Reuse the plugins that are unchanged, and unload the code of those that changed, and of whatever imports it.

    Returns:
        What puts the unloaded modules back, if the next generation is not used.
    """
    keys = {key for entry in registry.active() for key in entry.installed.closure}
    outdated = _outdated(environment.snapshots(keys), imported, environment.shared)
    for entry in registry.active():
        before = running.get(entry.name)
        if before is None or before.state is not State.ACTIVE or entry.installed.closure & outdated:
            continue
        if before.installed.distribution == entry.installed.distribution:
            registry.reuse(entry, before)
    now = environment.snapshots(outdated)
    return unload([each for key in outdated for each in (imported.get(key), now.get(key)) if each is not None])


def imported_snapshots(registry: Registry, environment: Environment) -> dict[str, Snapshot]:
    """Return the distributions that a generation imports, as they are on disk, and the host's own.

    Taken before the import: what is saved meanwhile differs from it, so that the next reload imports it.
    """
    keys = set(environment.shared)
    for entry in registry:
        if entry.state is not State.DISABLED and entry.installed.problem is None and entry.installed.unmet is None:
            keys |= entry.installed.closure
    return environment.snapshots(keys)


def unload_removed(before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """Unload the modules of distributions that no plugin needs any more, and return what is imported then.

    Compiled modules stay, and what is installed in their place later needs a restart.
    """
    compiled = {key: each for key, each in before.items() if each.compiled}
    unload([each for key, each in before.items() if key not in after and key not in compiled])
    return {**compiled, **after}


def _stale(now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot]) -> set[str]:
    """Return which of some distributions this process has imported in another state than they are in now."""
    return {key for key, each in now.items() if key in imported and imported[key].fingerprint != each.fingerprint}


def _outdated(now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot], shared: Collection[str]) -> frozenset[str]:
    """Return the distributions that changed, and all that require or import one of them, directly or not.

    What a distribution requires says which ones it may import, and authors forget to say it.
    """
    modules = [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    owned = {
        key: [(name, module) for name, module in modules if each.owns(module)]
        for key, each in imported.items()
        if key not in shared
    }
    outdated: set[str] = set()
    found = _stale(now, imported)
    while found:
        outdated |= found
        names = {name for key in outdated for name, _ in owned.get(key, ())}
        requiring = {key for key, each in now.items() if each.requires & outdated}
        importing = {key for key in owned.keys() - outdated if any(_imports(each, names) for _, each in owned[key])}
        found = (requiring | importing) - outdated
    return frozenset(outdated)


def _imports(module: ModuleType, names: Collection[str]) -> bool:
    if any(isinstance(each, ModuleType) and each.__name__ in names for each in list(vars(module).values())):
        return True
    tops = {name.partition(".")[0] for name in names}
    try:
        source = Path(module.__file__ or "").read_bytes()
        # Most don't, and to parse them all takes its time. In a package of the same name, imports can be relative.
        if module.__name__.partition(".")[0] not in tops and not any(top.encode() in source for top in tops):
            return False
        return any(name in names for name in _imported(ast.parse(source), module))
    except (OSError, SyntaxError, ValueError):
        return False


def _imported(tree: ast.AST, module: ModuleType) -> Iterator[str]:
    """Yield the names that a module's statements may import, wherever they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
