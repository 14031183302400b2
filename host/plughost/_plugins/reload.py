"""Reuse: which plugins of the running generation go on as they are, and which are imported afresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plughost._plugins.changes import Forgotten, Part, dependents, forget, stale
from plughost._plugins.registry import Origin, Registry, State

if TYPE_CHECKING:
    from plughost._plugins.discovery import Survey


def restart_reasons(survey: Survey, imported: Mapping[str, Part]) -> tuple[str, ...]:
    """Return why what is installed now can't be served by this process; empty where it can.

    Python can't import compiled modules twice, and what the host itself runs on can't be replaced below it.

    Args:
        survey: What is installed now.
        imported: Normalised names of the distributions that this process has imported, as they were then.
    """
    now = survey.parts(imported.keys())
    return tuple(
        f"{imported[key].name} changed from {imported[key].version} to {now[key].version} on disk, "
        + ("and the host itself runs on it" if key in survey.shared else "and it brings compiled modules")
        for key in sorted(stale(now, imported))
        if key in survey.shared or now[key].compiled or imported[key].compiled
    )


def reuse_unchanged(registry: Registry, running: Registry, survey: Survey, imported: Mapping[str, Part]) -> Forgotten:
    """Mark what is unchanged and give it what the running generation holds; forget the code of what changed.

    Args:
        registry: The plugins of the next generation.
        running: Those of the running one.
        survey: What is installed now.
        imported: Distributions that this process has imported, as they were then.

    Returns:
        The modules that were forgotten, to be restored if the next generation is not used.
    """
    outdated: set[str] = set()
    for entry in registry.active():
        parts = survey.parts(entry.found.parts - survey.shared)
        changed = dependents(parts, stale(parts, imported))
        outdated |= changed
        before = running.get(entry.name)
        if before is None or before.state is not State.ACTIVE:
            continue
        if changed or before.found.distribution != entry.found.distribution:
            entry.origin = Origin.CHANGED
        else:
            registry.reuse(entry, before)
    now = survey.parts(outdated)
    return forget(part for key in outdated for part in (imported.get(key), now.get(key)) if part is not None)


def imported_parts(registry: Registry, survey: Survey) -> dict[str, Part]:
    """Return the distributions that a generation has imported, as they are on disk, and the host's own."""
    keys = set(survey.shared)
    for entry in registry:
        if entry.state is not State.DISABLED and entry.found.problem is None and entry.found.unmet is None:
            keys |= entry.found.parts
    return survey.parts(keys)


def forget_removed(before: Mapping[str, Part], after: Mapping[str, Part]) -> None:
    """Forget the modules of distributions that no plugin needs any more."""
    forget(part for key, part in before.items() if key not in after and not part.compiled)
