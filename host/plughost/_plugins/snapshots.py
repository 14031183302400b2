"""Snapshots: how installed code is on disk, what of it changed since it was imported, and how to import it afresh."""

from __future__ import annotations

import hashlib
import importlib
import linecache
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import MetadataPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from plughost._plugins.metadata import record_of, version_of

if TYPE_CHECKING:
    from types import ModuleType

    from plughost._plugins.metadata import InstalledDistribution

_COMPILED: Final = (".so", ".pyd", ".dylib")
_SOURCES: Final = (".py", ".sql", ".html", ".css", ".js", ".json", ".toml")
_SOURCES_AT_TOP: Final = (".py", ".sql", ".html", ".css", ".js")


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
        sources: The path, size and time of each source file below that folder.
        foreign: Folders below it that hold other code: a virtual environment, projects of other editable installs.
        compiled: Whether it brings compiled modules, which can't be imported twice.
    """

    name: str
    version: str
    requires: frozenset[str]
    fingerprint: str
    files: frozenset[str]
    root: str | None
    sources: tuple[str, ...]
    foreign: tuple[str, ...]
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
        return (
            self.root is not None and _is_below(path, self.root) and not any(_is_below(path, f) for f in self.foreign)
        )


def take_snapshot(distribution: InstalledDistribution, requires: Collection[str], places: Collection[str]) -> Snapshot:
    """Describe a distribution as it is on disk. Places of installed code below its project are none of its own."""
    record = distribution.read_text("RECORD") or ""
    paths = [row[0] for row in record_of(distribution)] or [str(path) for path in distribution.files or ()]
    root = editable_root(distribution)
    foreign = tuple(sorted(each for each in places if root is not None and _is_below(each, root)))
    sources = tuple(file_states(root, foreign)) if root is not None else ()
    version = version_of(distribution)
    folder = distribution.locate_file("") if paths else ""
    return Snapshot(
        name=distribution.metadata["Name"],
        version=version,
        requires=frozenset(requires),
        fingerprint=hashlib.sha256("\n".join([version, record, *sources]).encode(errors="surrogateescape")).hexdigest(),
        files=frozenset(f"{folder}/{path}" for path in paths if path.endswith(".py")),
        root=root,
        sources=sources,
        foreign=foreign,
        compiled=any(path.endswith(_COMPILED) for path in paths),
    )


def refresh_caches() -> None:
    """Let the import system see what was installed, changed or removed since it last looked."""
    importlib.invalidate_caches()
    MetadataPathFinder().invalidate_caches()  # Python 3.11 keeps each state of a folder that it has seen
    linecache.checkcache()


def unload(owners: Collection[Snapshot]) -> Callable[[], None]:
    """Take the modules of some distributions out of `sys.modules`, so that they are imported afresh.

    Whoever holds the old modules goes on with them: requests in flight, the running generation.

    Returns:
        A function that puts the old modules back in place of those that were imported since.
    """
    modules = list(sys.modules.items())
    found = {name: module for name, module in modules if any(each.owns(module) for each in owners)}
    for name, module in found.items():
        del sys.modules[name]
        if compiled := getattr(module, "__cached__", None):  # byte code is as old as its source, in whole seconds
            with suppress(OSError):
                Path(compiled).unlink()

    def restore() -> None:
        unload(owners)
        sys.modules.update(found)

    return restore


def editable_root(distribution: InstalledDistribution) -> str | None:
    """Return the project folder of an editable install. None for any other."""
    url = (distribution.direct_url or {}).get("url", "") if distribution.is_editable else ""
    return unquote(urlsplit(url).path).rstrip("/") or None


def file_states(root: str, foreign: Collection[str] = ()) -> Iterator[str]:
    """Yield the path, size and time of each source file below a folder, but not of those in some folders below it.

    Folders such as `docs` and `tests` are left out at the top of a project only: deeper, they belong to its packages.
    So are TOML and JSON files: at the top, they are a host's settings and the like, which `plughost disable` writes.
    """
    for folder, folders, files in os.walk(root):
        if folder in foreign or not _NO_SOURCES.isdisjoint(files):
            folders.clear()
            continue
        is_top = folder == root and "__init__.py" not in files
        aside, suffixes = (_ASIDE, _SOURCES_AT_TOP) if is_top else (_NEVER, _SOURCES)
        folders[:] = sorted(name for name in folders if name not in aside and not name.startswith("."))
        for path in (Path(folder, name) for name in sorted(files) if name.endswith(suffixes)):
            try:
                state = path.stat()
            except OSError:  # an editor's dangling lock file, or one that was removed just now
                continue
            yield f"{path} {state.st_size} {state.st_mtime_ns}"


_NO_SOURCES: Final = frozenset({"pyvenv.cfg", "host.lock"})
"""What tells that a folder is a virtual environment, or the data folder of a host that was started in the project."""

_NEVER: Final = frozenset({"node_modules", "__pycache__"})
_ASIDE: Final = _NEVER | {"tests", "build", "dist", "docs", "bench", "plugins"}


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")
