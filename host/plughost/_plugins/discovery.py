"""Discover: which plugins are installed, read from their distributions' metadata without importing them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib import metadata

ENTRY_POINT_GROUP: Final = "plughost.plugins"
HOST: Final = "plughost"
RESERVED: Final = frozenset(
    [
        "bundle",
        "cert",
        "check",
        "completion",
        "console",
        "disable",
        "doctor",
        "drain",
        "enable",
        "help",
        "host",
        "init",
        "install",
        "lock",
        "migrate",
        "new",
        "plugins",
        "purge",
        "reload",
        "restart",
        "routes",
        "serve",
        "settings",
        "status",
        "stop",
        "stores",
        "uninstall",
        "upgrade",
        "version",
    ]
)
"""Commands of the host, now or likely, which no plugin may be called like: its own commands stand beside them."""

_plugin_name = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPlugin:
    """An installed plugin.

    Attributes:
        name: The plugin's name: its entry point's.
        distribution: The distribution that brings it.
        version: The distribution's version.
        entry_point: What to load.
        requires: Names of the plugins that it depends on, through whatever it requires.
        closure: Normalised names of its distribution and all that this requires, directly or not.
        problem: Why its metadata forbids using it, else None.
        unmet: The first requirement, of its own or of a library's, that is not met. None where all are.
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
    """Return why no plugin may have a name. None where one may."""
    if not _plugin_name(name):
        return f"the entry point's name {name!r} must be lower-case words joined by hyphens"
    if name in RESERVED:
        return f"`plughost {name}` is a command of the host, so no plugin can be called {name}"
    return None


def misplaced(distributions: Iterable[metadata.Distribution]) -> Iterator[str]:
    """Yield a sentence for each entry point whose group is nearly that of plugins."""
    for distribution in distributions:
        for point in distribution.entry_points:
            if point.group != ENTRY_POINT_GROUP and is_nearly_ours(point.group):
                yield (
                    f"{distribution.name}: its entry point {point.name} is in the group {point.group}, "
                    f"and plugins are found in {ENTRY_POINT_GROUP} only"
                )


def is_nearly_ours(group: str) -> bool:
    """Tell whether a group of entry points was probably meant to be that of plugins."""
    return group.startswith(HOST) or bool(get_close_matches(group, [ENTRY_POINT_GROUP], cutoff=0.8))


def in_order(plugins: Iterable[InstalledPlugin]) -> tuple[InstalledPlugin, ...]:
    """Sort plugins, already sorted by name, so that each stands after those that it depends on."""
    by_name: dict[str, list[InstalledPlugin]] = {}
    for plugin in plugins:
        by_name.setdefault(plugin.name, []).append(plugin)
    sorter = TopologicalSorter(_graph(by_name))
    try:
        sorter.prepare()
    except CycleError:  # distributions may require each other; then by name is as good as any order
        return tuple(plugin for name in sorted(by_name) for plugin in by_name[name])
    ordered: list[InstalledPlugin] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        for name in ready:
            ordered.extend(by_name[name])
        sorter.done(*ready)
    return tuple(ordered)


def _graph(by_name: Mapping[str, list[InstalledPlugin]]) -> dict[str, list[str]]:
    return {name: [each for each in group[0].requires if each in by_name] for name, group in by_name.items()}
