"""Changes: what of the installed code differs from what this process has imported, and how to import it afresh."""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
import linecache
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from types import ModuleType

_COMPILED: Final = (".so", ".pyd", ".dylib")
_SOURCES: Final = (".py", ".sql", ".html", ".css", ".js", ".json", ".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An installed distribution, as it is on disk now.

    Attributes:
        name: The distribution's name.
        version: Its version.
        requires: Normalised names of the distributions that it requires.
        fingerprint: Differs when any of its files does.
        files: Its Python files, absolute.
        root: The project folder of an editable install; else None.
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


def version_of(distribution: metadata.Distribution) -> str:
    """Return a distribution's version; `unknown` where its metadata has none."""
    # Not distribution.version: for missing keys that warns on Python 3.12 and later.
    return next(iter(distribution.metadata.get_all("Version") or ()), "unknown")


def read_part(distribution: metadata.Distribution, requires: Collection[str]) -> Part:
    """Describe a distribution as it is on disk.

    Args:
        distribution: The distribution.
        requires: Normalised names of those that it requires.
    """
    try:
        record = distribution.read_text("RECORD") or ""
        paths = _paths(record) or [str(path) for path in distribution.files or ()]
        root = _editable_root(distribution)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OSError,
        csv.Error,
    ):  # a damaged installation: its version is all that it tells
        record, paths, root = "", [], None
    version = version_of(distribution)
    folder = distribution.locate_file("") if paths else ""
    told = [version, record, *_states(root)]
    return Part(
        name=distribution.metadata["Name"],
        version=version,
        requires=frozenset(requires),
        fingerprint=hashlib.sha256("\n".join(told).encode()).hexdigest(),
        files=frozenset(f"{folder}/{path}" for path in paths if path.endswith(".py")),
        root=root,
        compiled=any(path.endswith(_COMPILED) for path in paths),
    )


def stale(parts: Mapping[str, Part], imported: Mapping[str, Part]) -> frozenset[str]:
    """Return which of some distributions this process has imported in another state than they are in now."""
    return frozenset(
        key for key, part in parts.items() if key in imported and imported[key].fingerprint != part.fingerprint
    )


def dependents(parts: Mapping[str, Part], keys: Collection[str]) -> frozenset[str]:
    """Return some distributions and all those among the parts that require them, directly or not."""
    reached = set(keys)
    grown = True
    while grown:
        more = {key for key, part in parts.items() if part.requires & reached} - reached
        reached |= more
        grown = bool(more)
    return frozenset(reached)


def refresh_caches() -> None:
    """Let the import system see what was installed, changed or removed since it last looked."""
    importlib.invalidate_caches()
    metadata.MetadataPathFinder().invalidate_caches()  # Python 3.11 keeps each state of a folder that it has seen
    linecache.checkcache()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Modules that were taken out of `sys.modules`.

    Attributes:
        owners: The distributions that they came from, as they were imported and as they are now.
        modules: The modules by name.
    """

    owners: tuple[Part, ...]
    modules: Mapping[str, ModuleType]

    def restore(self) -> None:
        """Put the old modules back in place of those that were imported since."""
        _take_out(self.owners)
        sys.modules.update(self.modules)


def forget(parts: Iterable[Part]) -> Forgotten:
    """Take the modules of some distributions out of `sys.modules`, so that they are imported afresh.

    Whoever holds the old modules goes on with them: requests in flight, the running generation.

    Args:
        parts: The distributions, as they were imported and as they are now.
    """
    owners = tuple(parts)
    return Forgotten(owners, _take_out(owners))


def _take_out(owners: Collection[Part]) -> dict[str, ModuleType]:
    modules = list(sys.modules.items())
    found = {name: module for name, module in modules if any(part.owns(module) for part in owners)}
    for name in found:
        del sys.modules[name]
    return found


def _paths(record: str) -> list[str]:
    """Return the paths in a RECORD, whose separators are slashes; `Distribution.files` takes ten times as long."""
    return [row[0] for row in csv.reader(record.splitlines()) if row]


def _editable_root(distribution: metadata.Distribution) -> str | None:
    text = distribution.read_text("direct_url.json")
    if not text:
        return None
    told = json.loads(text)
    if not told.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(told["url"]).path).rstrip("/")


def _states(root: str | None) -> Iterator[str]:
    """Yield what tells whether a file of an editable install changed: its path, size and time."""
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
