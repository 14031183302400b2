"""The environment that the host runs in: what is installed, what requires what, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from plughost import installed_distributions

ENTRY_POINT_GROUP: Final = "plughost.plugins"
HOST: Final = "plughost"
PREFIX: Final = f"{HOST}-"
"""What the distributions of plugins are called by convention, before the plugin's name."""


class Environment:
    """The installed distributions, at one moment.

    Attributes:
        installed: The distributions, by normalised name.
    """

    def __init__(self, distributions: Iterable[metadata.Distribution] | None = None) -> None:
        """Look at what is installed.

        Args:
            distributions: What is installed; all that is on `sys.path` by default.
        """
        self.installed: dict[str, metadata.Distribution] = {}
        for distribution in installed_distributions() if distributions is None else distributions:
            if distribution.name:
                self.installed.setdefault(canonicalize_name(distribution.name), distribution)

    @property
    def versions(self) -> dict[str, str]:
        """The versions, by normalised name."""
        return {key: _version(distribution) for key, distribution in self.installed.items()}

    @property
    def plugins(self) -> dict[str, str]:
        """The normalised names of the distributions that bring plugins, by plugin name."""
        return {name: key for key in sorted(self.installed) for name in self.plugins_of(key)}

    @property
    def shared(self) -> frozenset[str]:
        """Normalised names of the host's distribution and all that it requires: what no reload can replace."""
        return frozenset(self.closure([HOST]))

    def plugins_of(self, key: str) -> list[str]:
        """Return the names of the plugins that a distribution brings."""
        return sorted(point.name for point in self.installed[key].entry_points.select(group=ENTRY_POINT_GROUP))

    def name(self, key: str) -> str:
        """Return a distribution's name as it writes it itself."""
        return self.installed[key].metadata["Name"] if key in self.installed else key

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
            for requirement in requirements(self.installed[current[0]], current[1]):
                needed = canonicalize_name(requirement.name)
                waiting += [(needed, extra) for extra in ("", *requirement.extras)]
        return {key for key, _ in reached}

    def dependents(self, keys: Collection[str]) -> dict[str, list[str]]:
        """Return which other distributions require some of these, and which of them, all by normalised name."""
        found: dict[str, list[str]] = {}
        for key, distribution in sorted(self.installed.items()):
            needed = sorted({str(canonicalize_name(each.name)) for each in requirements(distribution)} & set(keys))
            if needed and key not in keys:
                found[key] = needed
        return found

    def unused_without(self, keys: Collection[str]) -> list[str]:
        """Return what was installed only because some distributions required it, and nothing else does.

        Args:
            keys: Normalised names of the distributions that go.
        """
        gone = set(keys)
        candidates = sorted(self.closure(keys) - gone - self.shared)
        grown = True
        while grown:
            unused = [
                key
                for key in candidates
                if key not in gone and not asked_for(self.installed[key]) and not self.dependents({key}).keys() - gone
            ]
            gone.update(unused)
            grown = bool(unused)
        return sorted(gone - set(keys))


def _version(distribution: metadata.Distribution) -> str:
    # Not distribution.version: for missing keys that warns on Python 3.12 and later.
    return next(iter(distribution.metadata.get_all("Version") or ()), "unknown")


def requirements(distribution: metadata.Distribution, extra: str = "") -> Iterator[Requirement]:
    """Yield what a distribution requires here.

    Args:
        distribution: The distribution.
        extra: The extra whose requirements are meant; those without one by default.
    """
    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
            marker = requirement.marker
            plain = marker is None or marker.evaluate({"extra": ""})
            wanted = marker is not None and marker.evaluate({"extra": extra}) and not plain if extra else plain
        except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
            continue  # pip has refused or mended it at install; it tells nothing about this environment
        if wanted:
            yield requirement


def origin(distribution: metadata.Distribution) -> Mapping[str, Any] | None:
    """Return what `direct_url.json` says of a distribution's origin (PEP 610); None where it came from an index."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return {}  # it came from somewhere, and nobody can tell any more from where
    infos = ("archive_info", "dir_info", "vcs_info")
    return {
        key: value
        for key, value in (told.items() if isinstance(told, dict) else ())
        if isinstance(value, dict if key in infos else str)
    }


def is_editable(distribution: metadata.Distribution) -> bool:
    """Tell whether a distribution is installed in place, from a folder with its sources."""
    return bool((origin(distribution) or {}).get("dir_info", {}).get("editable"))


def asked_for(distribution: metadata.Distribution) -> bool:
    """Tell whether somebody asked for a distribution by name, not another distribution (PEP 376, REQUESTED)."""
    return distribution.read_text("REQUESTED") is not None
