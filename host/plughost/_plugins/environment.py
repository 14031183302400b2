"""The environment: installed distributions, their requirements, and their plugins, known without an import."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from typing import Final

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from plughost._commands import RESERVED
from plughost._plugins.distributions import (
    InstalledDistribution,
    Snapshot,
    editable_root,
    find_distributions,
    refresh_caches,
    take_snapshot,
)

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
        project: The folder that it is developed in, if it is an editable install.
    """

    name: str
    distribution: str
    version: str
    entry_point: metadata.EntryPoint
    requires: tuple[str, ...] = ()
    closure: frozenset[str] = frozenset()
    problem: str | None = None
    unmet: str | None = None
    project: str | None = None

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


class Environment:
    """The installed distributions, at one moment.

    Attributes:
        installed: The distributions, by normalised name.
        warnings: A sentence for each distribution that is damaged, or not a plugin by a probable mistake.
    """

    def __init__(
        self, distributions: Iterable[metadata.Distribution] | None = None, *, allowed: Collection[str] | None = None
    ) -> None:
        """Take the distributions, by default all on `sys.path`, and the setting that says which may bring plugins."""
        refresh_caches()
        self._allowed = allowed
        self.installed: dict[str, InstalledDistribution] = {}
        damage_warnings = []
        for distribution in find_distributions(distributions):
            if distribution.damage is not None:
                damage_warnings.append(f"{distribution.folder or distribution.name} is damaged: {distribution.damage}")
            if distribution.name:
                self.installed.setdefault(canonicalize_name(distribution.name), distribution)
        self._snapshots: dict[str, Snapshot] = {}
        self._requirements: dict[tuple[str, str], tuple[Requirement, ...]] = {}
        self.warnings: tuple[str, ...] = (
            *sorted(damage_warnings),
            *misplaced_entry_points(self.installed.values()),
            *self._missing_entry_points(),
        )

    def _missing_entry_points(self) -> Iterator[str]:
        """Yield a warning for each distribution with a plugin's name, but no entry point, that no other requires."""
        ours = [key for key in self.installed if key.startswith(f"{HOST}-")]
        others = [*ours, *(self.installed.keys() - set(ours))]  # search ours first: mostly one of them requires it
        for key in ours:
            found = self.installed[key]
            lacks_one = not found.entry_points and HOST in self._required_names(key)
            if lacks_one and not any(key in self._required_names(other) for other in others):
                yield f"{found.name} is installed, but is not a plugin: it has no entry point in {ENTRY_POINT_GROUP}"

    def _required_names(self, key: str) -> set[str]:
        return {str(canonicalize_name(each.name)) for each in self.requirements(key)}

    @property
    def versions(self) -> dict[str, str]:
        """The versions, by normalised name."""
        return {key: distribution.version for key, distribution in self.installed.items()}

    @cached_property
    def plugins(self) -> tuple[InstalledPlugin, ...]:
        """The plugins, sorted by name, each after those that it depends on.

        A plugin depends on another when its distribution requires the other's, directly or through a library.
        """
        owners = self.owners
        by_name = sorted((name, key) for key in self.installed for name in self.plugins_of(key))
        found = tuple(self._plugin(name, key, owners[name]) for name, key in by_name)
        try:  # of two plugins with one name, the first serves
            names = sort_graph({plugin.name: plugin.requires for plugin in reversed(found)})
        except CycleError:  # distributions may require each other; then by name
            return found
        return tuple(sorted(found, key=lambda plugin: names.index(plugin.name)))

    @property
    def owners(self) -> dict[str, str]:
        """The normalised names of the distributions of plugins, by plugin name. Of two, the one that serves."""
        return {name: key for key in sorted(self.installed, reverse=True) for name in self.plugins_of(key)}

    @cached_property
    def shared(self) -> frozenset[str]:
        """Normalised names of the host's distribution and its requirements, which no reload can replace."""
        return frozenset({HOST} | self.closure([HOST]))

    def plugins_of(self, key: str) -> list[str]:
        """Return the names of a distribution's plugins."""
        return sorted(self.installed[key].entry_points.select(group=ENTRY_POINT_GROUP).names)

    def name(self, key: str) -> str:
        """Return a distribution's name as its metadata spells it."""
        return self.installed[key].metadata["Name"] if key in self.installed else key

    def requirements(self, key: str, extra: str = "") -> tuple[Requirement, ...]:
        """Return the requirements of a distribution in this environment, or those that one of its extras adds."""
        if (key, extra) not in self._requirements:
            texts = self.installed[key].requires or ()
            self._requirements[key, extra] = tuple(filter(None, (_parse_requirement(text, extra) for text in texts)))
        return self._requirements[key, extra]

    def closure(self, keys: Iterable[str], extras: Mapping[str, Collection[str]] | None = None) -> set[str]:
        """Return some distributions and their installed requirements, direct and indirect.

        Args:
            keys: Their normalised names.
            extras: Extras of theirs to include, by normalised name.
        """
        reached: set[tuple[str, str]] = set()
        waiting = [(key, extra) for key in keys for extra in ("", *(extras or {}).get(key, ()))]
        while waiting:
            current = waiting.pop()
            if current in reached or current[0] not in self.installed:
                continue
            reached.add(current)
            for requirement in self.requirements(*current):
                waiting += [(canonicalize_name(requirement.name), extra) for extra in ("", *requirement.extras)]
        return {key for key, _ in reached}

    def dependents(self, keys: Collection[str]) -> dict[str, list[str]]:
        """Return which other distributions require some of these, and which they require, by normalised name."""
        others = sorted(self.installed.keys() - set(keys))
        required = {key: sorted(self._required_names(key) & set(keys)) for key in others}
        return {key: names for key, names in required.items() if names}

    def snapshots(self, keys: Collection[str]) -> dict[str, Snapshot]:
        """Return the state on disk of distributions. Those that are not installed are omitted."""
        for key in keys:
            if key not in self._snapshots and key in self.installed:
                self._snapshots[key] = take_snapshot(self.installed[key], self._code_folders)
        return {key: self._snapshots[key] for key in keys if key in self._snapshots}

    @cached_property
    def _code_folders(self) -> frozenset[str]:
        """The folders of installed code: Python's own, those with metadata, and those of editable installs."""
        installed = self.installed.values()
        roots = filter(None, map(editable_root, installed))
        folders = {str(each.locate_file("")) for each in installed if each.folder.endswith(".dist-info")}
        return frozenset({sys.prefix, sys.base_prefix, *roots, *map(os.path.normpath, folders)})

    def _plugin(self, name: str, key: str, owner: str) -> InstalledPlugin:
        distribution = self.installed[key]
        closure = self.closure([key])
        points = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP, name=name))
        problem = name_problem(name)
        if problem is None and owner != key:
            problem = f"the distribution {owner} already brings a plugin of this name: uninstall one of the two"
        elif problem is None and len(points) > 1:
            problem = f"its distribution names two objects for it, {points[0].value} and {points[1].value}"
        elif problem is None:
            problem = why_not_allowed(self._allowed, self.name(key), distribution.version)
        return InstalledPlugin(
            name=name,
            distribution=self.name(key),
            version=distribution.version,
            entry_point=points[0],
            requires=tuple(sorted({name for each in closure - {key} for name in self.plugins_of(each)} - {name})),
            closure=frozenset(closure),
            problem=problem,
            unmet=next(self._unmet(key, closure), None),
            project=editable_root(distribution),
        )

    def _unmet(self, key: str, closure: Iterable[str]) -> Iterator[str]:
        """Yield each unmet requirement, those of the distribution itself first."""
        for current in sorted(closure, key=lambda each: (each != key, each)):
            by = "it" if current == key else self.name(current)
            for requirement in self.requirements(current):
                found = self.installed.get(canonicalize_name(requirement.name))
                if found is None:
                    yield f"{by} requires {requirement}, and it is not installed"
                elif not is_satisfied(requirement, found.version):
                    yield f"{by} requires {requirement}, and {found.version} is installed"


@lru_cache(maxsize=4096)  # markers are always evaluated for this environment
def _parse_requirement(text: str, extra: str) -> Requirement | None:
    """Parse a requirement. Return None if it does not apply here, or, with an extra, if it applies without it."""
    try:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None:
            applies = not extra
        else:
            applies = marker.evaluate({"extra": extra}) and not (extra and marker.evaluate({"extra": ""}))
    except (InvalidRequirement, InvalidVersion, UndefinedComparison):
        return None  # pip has refused or corrected it at install
    return requirement if applies else None


def parse_allowed(text: str) -> Requirement:
    """Parse an item of the setting `allowed`. A ValueError says that it is not just a name and a range of versions."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:  # its message has several lines
        raise ValueError(f'{text!r} is no distribution with a range of versions, such as "shop >= 1, < 2"') from None
    if requirement.url or requirement.extras or requirement.marker:
        raise ValueError(f"{text!r} is more than a distribution with a range of versions")
    return requirement


def why_not_allowed(allowed: Collection[str] | None, distribution: str, version: str) -> str | None:
    """Return why a distribution may not provide plugins, or None. Without the setting, all may."""
    if allowed is None:
        return None
    key = canonicalize_name(distribution)
    matching = [each for each in map(parse_allowed, allowed) if canonicalize_name(each.name) == key]
    if not matching:
        return f"{distribution} {version} is not allowed: the setting allowed does not name it"
    if any(is_satisfied(each, version) for each in matching):
        return None
    return f"{distribution} {version} is not allowed: the setting allowed has {', '.join(map(str, matching))}"


def is_satisfied(requirement: Requirement, version: str) -> bool:
    """Return whether a version is in the range of a requirement. A pre-release may be, since it is installed."""
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return not requirement.specifier
