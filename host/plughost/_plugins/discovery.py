"""Discover: which plugins are installed, read from their distributions' metadata without importing them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from typing import Final

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from plughost._plugins.changes import Part, read_part, refresh_caches, version_of
from plughost._plugins.metadata import InstalledDistribution, installed

ENTRY_POINT_GROUP: Final = "plughost.plugins"
HOST: Final = "plughost"
RESERVED: Final = frozenset(
    [
        "bundle",
        "cert",
        "check",
        "console",
        "disable",
        "drain",
        "enable",
        "help",
        "host",
        "install",
        "lock",
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
class Found:
    """An installed plugin.

    Attributes:
        name: The plugin's name: its entry point's.
        distribution: The distribution that brings it.
        version: The distribution's version.
        entry_point: What to load.
        requires: Names of the plugins that it depends on, through whatever it requires.
        parts: Normalised names of its distribution and all that this requires, directly or not.
        problem: Why it can't be used, where its metadata already tells; else None.
        unmet: What it requires and is not there, directly or not; None where all is.
    """

    name: str
    distribution: str
    version: str
    entry_point: metadata.EntryPoint
    requires: tuple[str, ...] = ()
    parts: frozenset[str] = frozenset()
    problem: str | None = None
    unmet: str | None = None

    @property
    def label(self) -> str:
        """The plugin with its distribution and version, as messages name it."""
        return f"{self.name} ({self.distribution} {self.version})"


class Survey:
    """What is installed, at one moment.

    Attributes:
        plugins: The plugins, sorted by name and then so that each stands after those that it depends on.
        installed: The distributions, by normalised name.
        shared: Normalised names of the host's distribution and all that it requires.
        warnings: What is installed and may be no plugin by mistake, a sentence each.
    """

    def __init__(self, distributions: Iterable[metadata.Distribution] | None = None) -> None:
        """Look at what is installed.

        Args:
            distributions: What is installed; all that is on `sys.path` by default.
        """
        refresh_caches()
        self.installed: dict[str, InstalledDistribution] = {}
        damaged = []
        for distribution in installed(distributions):
            if distribution.damage is not None:
                damaged.append(f"{distribution.folder or distribution.name} is damaged: {distribution.damage}")
            if distribution.name:
                self.installed.setdefault(canonicalize_name(distribution.name), distribution)
        self.warnings = (*sorted(damaged), *misplaced(self.installed.values()))
        self._parts: dict[str, Part] = {}
        self._needs: dict[str, tuple[_Need, ...]] = {}
        self._names: dict[str, set[str]] = {
            key: each.entry_points.select(group=ENTRY_POINT_GROUP).names for key, each in self.installed.items()
        }
        self.shared = frozenset({HOST} | self._closure(HOST)[0]) if HOST in self.installed else frozenset({HOST})
        self.plugins = _in_order(
            self._found(name, key, owners) for name, owners in self._owners().items() for key in owners
        )

    def parts(self, keys: Collection[str]) -> dict[str, Part]:
        """Describe installed distributions as they are on disk.

        Args:
            keys: Their normalised names; those that are not installed are left out.
        """
        for key in keys:
            if key not in self._parts and key in self.installed:
                self._parts[key] = read_part(self.installed[key], {need.key for need in self._needs_of(key)})
        return {key: self._parts[key] for key in keys if key in self._parts}

    def _owners(self) -> dict[str, list[str]]:
        """Return plugin name to the distributions that bring a plugin of that name, both sorted."""
        names = sorted(set().union(*self._names.values()))
        return {name: sorted(key for key, own in self._names.items() if name in own) for name in names}

    def _found(self, name: str, key: str, owners: list[str]) -> Found:
        distribution = self.installed[key]
        closure, unmet = self._closure(key)
        problem = None
        own = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP, name=name))
        if not _plugin_name(name):
            problem = f"the entry point's name {name!r} must be lower-case words joined by hyphens"
        elif name in RESERVED:
            problem = f"`plughost {name}` is a command of the host, so no plugin can be called {name}"
        elif owners[0] != key:
            problem = f"the distribution {owners[0]} already brings a plugin of this name: uninstall one of the two"
        elif len(own) > 1:
            problem = f"its distribution names two objects for it, {own[0].value} and {own[1].value}"
        return Found(
            name=name,
            distribution=distribution.metadata["Name"],
            version=version_of(distribution),
            entry_point=own[0],
            requires=tuple(sorted(set().union(*(self._names[each] for each in closure)) - {name})),
            parts=frozenset({key} | closure),
            problem=problem,
            unmet=unmet,
        )

    def _closure(self, key: str) -> tuple[set[str], str | None]:
        """Return all that a distribution requires, and the first requirement that is not met."""
        reached: set[str] = set()
        unmet = None
        waiting = [key]
        while waiting:
            current = waiting.pop()
            for need in self._needs_of(current):
                if need.unmet is not None:
                    by = "it" if current == key else self.installed[current].metadata["Name"]
                    unmet = unmet or f"{by} requires {need.requirement}, and {need.unmet}"
                elif need.key not in reached:
                    reached.add(need.key)
                    waiting.append(need.key)
        return reached, unmet

    def _needs_of(self, key: str) -> tuple[_Need, ...]:
        """Return what a distribution requires; reading metadata takes most of a survey's time, so each is read once."""
        if key not in self._needs:
            self._needs[key] = tuple(
                _Need(requirement, needed, _unmet(requirement, self.installed.get(needed)))
                for requirement in _requirements(self.installed[key])
                for needed in (canonicalize_name(requirement.name),)
            )
        return self._needs[key]


@dataclass(frozen=True, slots=True)
class _Need:
    """A requirement of an installed distribution.

    Attributes:
        requirement: As it is written.
        key: The normalised name of the distribution that it asks for.
        unmet: Why it is not met; None where it is.
    """

    requirement: Requirement
    key: str
    unmet: str | None


def discover(distributions: Iterable[metadata.Distribution] | None = None) -> tuple[Found, ...]:
    """Find the installed plugins.

    A plugin depends on another when its distribution requires the other's, directly or through a library:
    pip's metadata is the only place where that is written.

    Args:
        distributions: What is installed; all that is on `sys.path` by default.

    Returns:
        The plugins, sorted by name and then so that each stands after those that it depends on.
    """
    return Survey(distributions).plugins


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


def _requirements(distribution: metadata.Distribution) -> Iterable[Requirement]:
    return (found for found in map(_applying, distribution.requires or ()) if found is not None)


@lru_cache(maxsize=4096)  # the environment that markers ask for is always this one
def _applying(text: str) -> Requirement | None:
    """Return a requirement, unless it is not one in this environment."""
    try:
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
        return None  # pip has refused or mended it at install; it tells nothing about this environment
    return requirement if applies else None


def _unmet(requirement: Requirement, found: metadata.Distribution | None) -> str | None:
    if found is None:
        return "it is not installed"
    version = version_of(found)
    try:
        met = requirement.specifier.contains(version, prereleases=True)
    except (InvalidVersion, TypeError):
        met = not requirement.specifier
    return None if met else f"{version} is installed"


def _in_order(plugins: Iterable[Found]) -> tuple[Found, ...]:
    """Sort plugins, already sorted by name, so that each stands after those that it depends on."""
    by_name: dict[str, list[Found]] = {}
    for plugin in plugins:
        by_name.setdefault(plugin.name, []).append(plugin)
    sorter = TopologicalSorter(_graph(by_name))
    try:
        sorter.prepare()
    except CycleError:  # distributions may require each other; then by name is as good as any order
        return tuple(plugin for name in sorted(by_name) for plugin in by_name[name])
    ordered: list[Found] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        for name in ready:
            ordered.extend(by_name[name])
        sorter.done(*ready)
    return tuple(ordered)


def _graph(by_name: Mapping[str, list[Found]]) -> dict[str, list[str]]:
    return {name: [each for each in group[0].requires if each in by_name] for name, group in by_name.items()}
