"""Discovery: installed plugins, known from their distributions' metadata without an import."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from plughost._commands import RESERVED

if TYPE_CHECKING:
    from importlib import metadata

ENTRY_POINT_GROUP: Final = "plughost.plugins"
HOST: Final = "plughost"

_plugin_name = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """An installed plugin.

    Attributes:
        name: The plugin's name, which is that of its entry point.
        distribution: The distribution that provides it.
        version: The distribution's version.
        entry_point: What to load.
        requires: Names of the plugins that it depends on, directly or through libraries.
        closure: Normalised names of its distribution and its requirements, direct and indirect.
        problem: Why its metadata makes it unusable, or None.
        unmet: The first requirement, its own or a library's, that is not met. None if all are.
    """

    name: str
    distribution: str
    version: str
    entry_point: metadata.EntryPoint
    requires: tuple[str, ...] = ()
    closure: frozenset[str] = frozenset()
    problem: str | None = None
    unmet: str | None = None

    @property
    def label(self) -> str:
        """The plugin with its distribution and version, as messages name it."""
        return f"{self.name} ({self.distribution} {self.version})"


def name_problem(name: str) -> str | None:
    """Return why a plugin can't have a name, or None."""
    if not _plugin_name(name):
        return f"the entry point's name {name!r} must be lower-case words joined by hyphens"
    if name in RESERVED:
        return f"`plughost {name}` is a command of the host, so no plugin can be called {name}"
    return None


def misplaced_entry_points(distributions: Iterable[metadata.Distribution]) -> Iterator[str]:
    """Yield a warning for each entry point whose group begins with the host's name but is not that of plugins."""
    for distribution in distributions:
        for point in distribution.entry_points:
            if point.group != ENTRY_POINT_GROUP and point.group.startswith(HOST):
                yield (
                    f"{distribution.name}: its entry point {point.name} is in the group {point.group}, "
                    f"and plugins are found in {ENTRY_POINT_GROUP} only"
                )


def sort_plugins(plugins: Iterable[InstalledPlugin]) -> tuple[InstalledPlugin, ...]:
    """Sort plugins, already sorted by name, so that each comes after those that it depends on."""
    found = tuple(plugins)
    requires = {plugin.name: plugin.requires for plugin in reversed(found)}  # of two with one name, the first serves
    try:
        names = sort_graph(requires)
    except CycleError:  # distributions may require each other; then by name
        return found
    return tuple(sorted(found, key=lambda plugin: names.index(plugin.name)))


def sort_graph(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the names of a graph, each after those that it maps to, and otherwise by name. May raise `CycleError`."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    return ordered
