"""Explanation of why an installed plugin or distribution serves or does not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from plughost._plugins.discovery import ENTRY_POINT_GROUP, HOST, misplaced_entry_points
from plughost._plugins.metadata import find_distributions
from plughost._plugins.registry import PluginRecord, State
from plughost._tracebacks import own_frames

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment
    from plughost._plugins.metadata import InstalledDistribution
    from plughost._plugins.registry import Registry

_HOW_TO_DECLARE = f"""\
If it should be a plugin, its author adds an entry point to pyproject.toml, and installs it again:
  [project.entry-points."{ENTRY_POINT_GROUP}"]
  NAME = "PACKAGE.MODULE\""""


def explain(name: str, registry: Registry, environment: Environment) -> tuple[bool, list[str]]:
    """Return whether a plugin, or all plugins of a distribution, serve, and an explanation in lines."""
    keys = (canonicalize_name(name), canonicalize_name(f"{HOST}-{name}"))
    entries = [each for each in registry if each.name == name]
    entries = entries or [each for each in registry if canonicalize_name(each.installed.distribution) in keys]
    if entries:
        serves = all(each.state is State.ACTIVE for each in entries)
        return serves, [line for each in entries for line in _describe_entry(each)]
    found = next((environment.installed[key] for key in keys if key in environment.installed), None)
    if found is None:
        return False, list(_describe_missing(name, keys, registry, environment))
    return False, list(_describe_distribution(found))


def _describe_entry(entry: PluginRecord) -> Iterator[str]:
    label = entry.installed.label
    if entry.failure is not None:
        yield f"{label} is {entry.state}."
        yield f"  {entry.failure}"
        if entry.failure.trace:
            yield f"\n{own_frames(entry.failure.trace)}"
    elif entry.state is State.DISABLED:
        yield f"{label} is disabled by the setting disabled or by --without. Enable it: plughost enable {entry.name}"
    else:
        mounted = [f"{group.prefix} on the site {entry.site_of(group)}" for group in entry.declared.groups]
        yield f"{label} is active, and {'serves ' + ', '.join(mounted) if mounted else 'mounts no route'}."


def _describe_distribution(found: InstalledDistribution) -> Iterator[str]:
    label = f"{found.name} {found.version}"
    if found.damage is not None:
        yield f"{label} is installed, but damaged: {found.damage}. Install it again."
        return
    wrong = list(misplaced_entry_points([found]))
    groups = sorted(found.entry_points.groups)
    if wrong:
        yield from (f"{each}." for each in wrong)
    elif groups:
        in_groups = f"it has entry points in {', '.join(groups)}, but none in {ENTRY_POINT_GROUP}"
        yield f"{label} is installed, but is not a plugin: {in_groups}."
    else:
        yield f"{label} is installed, but is not a plugin: it has no entry points."
    yield _HOW_TO_DECLARE


def _describe_missing(name: str, keys: tuple[str, ...], registry: Registry, environment: Environment) -> Iterator[str]:
    leftovers = find_distributions(leftover=True)
    left = [each for each in leftovers if each.name and canonicalize_name(each.name) in keys]
    if left:
        yield (
            f"{left[0].name} {left[0].version} is not installed any more: an installer was killed while it removed "
            f"or replaced it, and left {left[0].locate_file(left[0].folder)}. Install it again."
        )
        return
    known = [*(each.name for each in registry), *environment.installed]
    close = get_close_matches(name, known, n=1)
    yield f"{name} is not installed in {sys.prefix}{f'; did you mean {close[0]}?' if close else '.'}"
