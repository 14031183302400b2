"""Discover: which distributions are installed, what they require, and which plugins they bring."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import metadata

from packaging.markers import UndefinedComparison
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from plughost._plugins.discovery import ENTRY_POINT_GROUP, HOST, InstalledPlugin, in_order, misplaced, name_problem
from plughost._plugins.metadata import InstalledDistribution, installed, version_of
from plughost._plugins.snapshots import Snapshot, editable_root, refresh_caches, take_snapshot


class Environment:
    """What is installed, at one moment.

    Attributes:
        installed: The distributions, by normalised name.
        warnings: What is damaged, or is no plugin, probably by mistake. A sentence each.
    """

    def __init__(self, distributions: Iterable[metadata.Distribution] | None = None) -> None:
        refresh_caches()
        self.installed: dict[str, InstalledDistribution] = {}
        damaged = []
        for distribution in installed(distributions):
            if distribution.damage is not None:
                damaged.append(f"{distribution.folder or distribution.name} is damaged: {distribution.damage}")
            if distribution.name:
                self.installed.setdefault(canonicalize_name(distribution.name), distribution)
        self._snapshots: dict[str, Snapshot] = {}
        self._requirements: dict[tuple[str, str], tuple[Requirement, ...]] = {}
        self.warnings: tuple[str, ...] = (
            *sorted(damaged),
            *misplaced(self.installed.values()),
            *self._undeclared(),
        )

    def _undeclared(self) -> Iterator[str]:
        """Yield a sentence for each distribution named as plugins are that has no entry point, and serves no other."""
        ours = [key for key in self.installed if key.startswith(f"{HOST}-")]
        others = [*ours, *(self.installed.keys() - set(ours))]  # mostly one of ours requires it: look there first
        for key in ours:
            found = self.installed[key]
            if found.entry_points or HOST not in self._needs(key):
                continue
            if not any(key in self._needs(other) for other in others):
                yield f"{found.name} is installed, but is not a plugin: it has no entry point in {ENTRY_POINT_GROUP}"

    def _needs(self, key: str) -> set[str]:
        return {str(canonicalize_name(each.name)) for each in self.requirements(key)}

    @property
    def versions(self) -> dict[str, str]:
        """The versions, by normalised name."""
        return {key: version_of(distribution) for key, distribution in self.installed.items()}

    @cached_property
    def plugins(self) -> tuple[InstalledPlugin, ...]:
        """The plugins, sorted by name and then so that each stands after those that it depends on.

        A plugin depends on another when its distribution requires the other's, directly or through a library.
        """
        owners: dict[str, list[str]] = {}
        for key in sorted(self.installed):
            for name in self.plugins_of(key):
                owners.setdefault(name, []).append(key)
        return in_order(self._plugin(name, key, owners[name]) for name in sorted(owners) for key in owners[name])

    @property
    def owners(self) -> dict[str, str]:
        """The normalised names of the distributions that bring plugins, by plugin name. Of two, the one that serves."""
        return {name: key for key in sorted(self.installed, reverse=True) for name in self.plugins_of(key)}

    @cached_property
    def shared(self) -> frozenset[str]:
        """Normalised names of the host's distribution and all that it requires: what no reload can replace."""
        return frozenset({HOST} | self.closure([HOST]))

    def plugins_of(self, key: str) -> list[str]:
        """Return the names of the plugins that a distribution brings."""
        return sorted(self.installed[key].entry_points.select(group=ENTRY_POINT_GROUP).names)

    def name(self, key: str) -> str:
        """Return a distribution's name as it writes it itself."""
        return self.installed[key].metadata["Name"] if key in self.installed else key

    def requirements(self, key: str, extra: str = "") -> tuple[Requirement, ...]:
        """Return what a distribution requires here, or what one of its extras adds."""
        if (key, extra) not in self._requirements:
            texts = self.installed[key].requires or ()
            self._requirements[key, extra] = tuple(filter(None, (_applying(text, extra) for text in texts)))
        return self._requirements[key, extra]

    def closure(self, keys: Iterable[str], extras: Mapping[str, Collection[str]] | None = None) -> set[str]:
        """Return some distributions and all that they require, as far as it is installed.

        Args:
            keys: Their normalised names.
            extras: The extras of theirs that are wanted too, by normalised name.
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
        """Return which other distributions require some of these, and which of them, all by normalised name."""
        found: dict[str, list[str]] = {}
        for key in sorted(self.installed.keys() - set(keys)):
            needed = sorted(self._needs(key) & set(keys))
            if needed:
                found[key] = needed
        return found

    def snapshots(self, keys: Collection[str]) -> dict[str, Snapshot]:
        """Return the state on disk of installed distributions. Those that are not installed are left out."""
        for key in keys:
            if key not in self._snapshots and key in self.installed:
                self._snapshots[key] = take_snapshot(self.installed[key], self._needs(key), self._places)
        return {key: self._snapshots[key] for key in keys if key in self._snapshots}

    @cached_property
    def _places(self) -> frozenset[str]:
        """The folders that installed code is in: Python's own, those with metadata, and those of editable installs."""
        folders = {sys.prefix, sys.base_prefix}
        for each in self.installed.values():
            root = editable_root(each)
            if root is not None:
                folders.add(root)
            if each.folder.endswith(".dist-info"):
                folders.add(os.path.normpath(str(each.locate_file(""))))
        return frozenset(folders)

    def _plugin(self, name: str, key: str, owners: list[str]) -> InstalledPlugin:
        distribution = self.installed[key]
        closure = self.closure([key])
        own = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP, name=name))
        problem = name_problem(name)
        if problem is None and owners[0] != key:
            problem = f"the distribution {owners[0]} already brings a plugin of this name: uninstall one of the two"
        elif problem is None and len(own) > 1:
            problem = f"its distribution names two objects for it, {own[0].value} and {own[1].value}"
        return InstalledPlugin(
            name=name,
            distribution=distribution.metadata["Name"],
            version=version_of(distribution),
            entry_point=own[0],
            requires=tuple(sorted({name for each in closure - {key} for name in self.plugins_of(each)} - {name})),
            closure=frozenset(closure),
            problem=problem,
            unmet=next(self._unmet(key, closure), None),
        )

    def _unmet(self, key: str, closure: Iterable[str]) -> Iterator[str]:
        """Yield each requirement that is not met, of a distribution first, then of what it requires."""
        for current in sorted(closure, key=lambda each: (each != key, each)):
            by = "it" if current == key else self.name(current)
            for requirement in self.requirements(current):
                found = self.installed.get(canonicalize_name(requirement.name))
                if found is None:
                    yield f"{by} requires {requirement}, and it is not installed"
                elif not _fits(requirement, version_of(found)):
                    yield f"{by} requires {requirement}, and {version_of(found)} is installed"


def _fits(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except (InvalidVersion, TypeError):
        return not requirement.specifier


@lru_cache(maxsize=4096)  # markers are always evaluated for this environment
def _applying(text: str, extra: str) -> Requirement | None:
    """Return a requirement, unless it is not one in this environment. Of an extra, only what the extra adds."""
    try:
        requirement = Requirement(text)
        marker = requirement.marker
        plain = marker is None or marker.evaluate({"extra": ""})
        applies = marker is not None and not plain and marker.evaluate({"extra": extra}) if extra else plain
    except (InvalidRequirement, InvalidVersion, UndefinedComparison):
        return None  # pip has refused or mended it at install
    return requirement if applies else None
