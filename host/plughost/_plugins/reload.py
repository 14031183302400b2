"""Reuse: which plugins of the running generation go on as they are, and which are imported afresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plughost._plugins.importing import importers
from plughost._plugins.registry import Registry, State
from plughost._plugins.snapshots import Snapshot, UnloadedModules, dependents, stale, unload

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment


def restart_reasons(environment: Environment, imported: Mapping[str, Snapshot]) -> tuple[str, ...]:
    """Return why what is installed now can't be served by this process. Empty where it can.

    Python can't import compiled modules twice, and a running host can't replace its own requirements.
    """
    now = environment.snapshots(imported.keys())
    return tuple(
        f"{imported[key].name} changed from {imported[key].version} to {now[key].version} on disk, "
        + ("and the host itself runs on it" if key in environment.shared else "and it brings compiled modules")
        for key in sorted(stale(now, imported))
        if key in environment.shared or now[key].compiled or imported[key].compiled
    )


def reuse_unchanged(
    registry: Registry, running: Registry, environment: Environment, imported: Mapping[str, Snapshot]
) -> UnloadedModules:
    """Reuse the plugins that are unchanged, and unload the code of those that changed, and of whatever imports it.

    Returns:
        The modules that were unloaded, to be restored if the next generation is not used.
    """
    keys = {key for entry in registry.active() for key in entry.installed.closure} - environment.shared
    own = environment.snapshots(keys)
    changed = dependents(own, stale(own, imported))
    outdated = dependents(own, importers(imported, changed, beside=environment.shared))
    for entry in registry.active():
        before = running.get(entry.name)
        if before is None or before.state is not State.ACTIVE or entry.installed.closure & outdated:
            continue
        if before.installed.distribution == entry.installed.distribution:
            registry.reuse(entry, before)
    now = environment.snapshots(outdated)
    return unload(each for key in outdated for each in (imported.get(key), now.get(key)) if each is not None)


def imported_snapshots(registry: Registry, environment: Environment) -> dict[str, Snapshot]:
    """Return the distributions that a generation imports, as they are on disk, and the host's own.

    Taken before the import: what is saved meanwhile differs from it, so that the next reload imports it.
    """
    keys = set(environment.shared)
    for entry in registry:
        if entry.state is not State.DISABLED and entry.installed.problem is None and entry.installed.unmet is None:
            keys |= entry.installed.closure
    return environment.snapshots(keys)


def unload_removed(before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> None:
    """Unload the modules of distributions that no plugin needs any more."""
    unload(each for key, each in before.items() if key not in after and not each.compiled)
