"""Snapshots: how installed code is on disk, what of it changed since it was imported, and how to import it afresh."""

from __future__ import annotations

import csv
import hashlib
import importlib
import linecache
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import MetadataPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from plughost._plugins.metadata import version_of

if TYPE_CHECKING:
    from types import ModuleType

    from plughost._plugins.metadata import InstalledDistribution

_COMPILED: Final = (".so", ".pyd", ".dylib")
_SOURCES: Final = (".py", ".sql", ".html", ".css", ".js", ".json", ".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An installed distribution, as it was on disk at one moment.

    Attributes:
        name: The distribution's name.
        version: Its version.
        requires: Normalised names of the distributions that it requires.
        fingerprint: Differs when any of its files does.
        files: Its Python files, absolute.
        root: The project folder of an editable install, else None.
        compiled: Whether it brings compiled modules, which can't be imported twice.
    """

    name: str
    version: str
    requires: frozenset[str]
    fingerprint: str
    files: frozenset[str]
    root: str | None
    compiled: bool

    def owns(self, module: ModuleType) -> bool:
        """Tell whether a module came from this distribution."""
        file = getattr(module, "__file__", None)
        if file is None:
            paths = [str(path) for path in getattr(module, "__path__", ())]
            return bool(paths) and all(self._has(path) for path in paths)
        return file in self.files or self._under_root(file)

    def _has(self, folder: str) -> bool:
        return self._under_root(folder) or any(file.startswith(folder + "/") for file in self.files)

    def _under_root(self, path: str) -> bool:
        return self.root is not None and path.startswith(self.root + "/")


def take_snapshot(distribution: InstalledDistribution, requires: Collection[str]) -> Snapshot:
    """Describe a distribution as it is on disk."""
    try:
        record = distribution.read_text("RECORD") or ""
        paths = _paths(record) or [str(path) for path in distribution.files or ()]
    except csv.Error:  # a damaged installation, of which only the version is known
        record, paths = "", []
    root = _editable_root(distribution)
    version = version_of(distribution)
    folder = distribution.locate_file("") if paths else ""
    return Snapshot(
        name=distribution.metadata["Name"],
        version=version,
        requires=frozenset(requires),
        fingerprint=hashlib.sha256("\n".join([version, record, *file_states(root)]).encode()).hexdigest(),
        files=frozenset(f"{folder}/{path}" for path in paths if path.endswith(".py")),
        root=root,
        compiled=any(path.endswith(_COMPILED) for path in paths),
    )


def stale(now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot]) -> frozenset[str]:
    """Return which of some distributions this process has imported in another state than they are in now."""
    return frozenset(
        key for key, each in now.items() if key in imported and imported[key].fingerprint != each.fingerprint
    )


def dependents(now: Mapping[str, Snapshot], keys: Collection[str]) -> frozenset[str]:
    """Return some distributions and all those among the others that require them, directly or not."""
    reached = set(keys)
    grown = True
    while grown:
        more = {key for key, each in now.items() if each.requires & reached} - reached
        reached |= more
        grown = bool(more)
    return frozenset(reached)


def refresh_caches() -> None:
    """Let the import system see what was installed, changed or removed since it last looked."""
    importlib.invalidate_caches()
    MetadataPathFinder().invalidate_caches()  # Python 3.11 keeps each state of a folder that it has seen
    linecache.checkcache()


@dataclass(frozen=True, slots=True)
class UnloadedModules:
    """Modules that were taken out of `sys.modules`.

    Attributes:
        owners: The distributions that they came from, as they were imported and as they are now.
        modules: The modules by name.
    """

    owners: tuple[Snapshot, ...]
    modules: Mapping[str, ModuleType]

    def restore(self) -> None:
        """Put the old modules back in place of those that were imported since."""
        unload(self.owners)
        sys.modules.update(self.modules)


def unload(owners: Iterable[Snapshot]) -> UnloadedModules:
    """Take the modules of some distributions out of `sys.modules`, so that they are imported afresh.

    Whoever holds the old modules goes on with them: requests in flight, the running generation.
    """
    owners = tuple(owners)
    modules = list(sys.modules.items())
    found = {name: module for name, module in modules if any(each.owns(module) for each in owners)}
    for name, module in found.items():
        del sys.modules[name]
        if compiled := getattr(module, "__cached__", None):  # byte code is as old as its source, in whole seconds
            with suppress(OSError):
                Path(compiled).unlink()
    return UnloadedModules(owners, found)


def _paths(record: str) -> list[str]:
    """Return the paths in a RECORD, whose separators are slashes. `Distribution.files` takes ten times as long."""
    return [row[0] for row in csv.reader(record.splitlines()) if row]


def _editable_root(distribution: InstalledDistribution) -> str | None:
    if not distribution.is_editable or distribution.direct_url is None:
        return None
    return unquote(urlsplit(distribution.direct_url.get("url", "")).path).rstrip("/") or None


def file_states(root: str | None) -> Iterator[str]:
    """Yield the path, size and time of each source file below the project folder of an editable install."""
    if root is None:
        return
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _ASIDE and not name.startswith("."))
        for path in (Path(folder, name) for name in sorted(files) if name.endswith(_SOURCES)):
            try:
                state = path.stat()
            except OSError:  # an editor's dangling lock file, or one that was removed just now
                continue
            yield f"{path} {state.st_size} {state.st_mtime_ns}"


_ASIDE: Final = frozenset({"tests", "build", "dist", "docs", "bench", "plugins", "node_modules", "__pycache__"})
