"""Snapshots: the state of installed code on disk, to find what has changed since its import, and to unload it."""

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

from plughost._plugins.metadata import record_of

if TYPE_CHECKING:
    from types import ModuleType

    from plughost._plugins.metadata import InstalledDistribution

_COMPILED_SUFFIXES: Final = (".so", ".pyd", ".dylib")
_SOURCE_SUFFIXES: Final = (".py", ".sql", ".html", ".css", ".js", ".json", ".toml")
_SOURCE_SUFFIXES_AT_TOP: Final = (".py", ".sql", ".html", ".css", ".js")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An installed distribution, as it was on disk at one moment.

    Attributes:
        fingerprint: A hash of the state of all its files.
        files: The absolute paths of its Python files.
        root: The project folder of an editable install, or None.
        sources: The path, size and time of each source file below that folder.
        foreign: Folders below it with other code: a virtual environment, other editable installs.
        compiled: Whether it has compiled modules, which can't be imported twice.
    """

    name: str
    version: str
    fingerprint: str
    files: frozenset[str]
    root: str | None
    sources: tuple[str, ...]
    foreign: tuple[str, ...]
    compiled: bool

    def owns(self, module: ModuleType) -> bool:
        """Return whether a module belongs to this distribution."""
        file = getattr(module, "__file__", None)
        if file is None:
            paths = [str(path) for path in getattr(module, "__path__", ())]
            return bool(paths) and all(self._contains_folder(path) for path in paths)
        return file in self.files or self._under_root(file)

    def _contains_folder(self, folder: str) -> bool:
        return self._under_root(folder) or any(file.startswith(folder + "/") for file in self.files)

    def _under_root(self, path: str) -> bool:
        is_below_root = self.root is not None and _is_below(path, self.root)
        return is_below_root and not any(_is_below(path, folder) for folder in self.foreign)


def take_snapshot(distribution: InstalledDistribution, code_folders: Collection[str]) -> Snapshot:
    """Return the snapshot of a distribution. Folders of installed code below its project do not belong to it."""
    paths = [row[0] for row in record_of(distribution)] or [str(path) for path in distribution.files or ()]
    root = editable_root(distribution)
    foreign = tuple(sorted(each for each in code_folders if root is not None and _is_below(each, root)))
    sources = tuple(file_states(root, foreign)) if root is not None else ()
    folder = distribution.locate_file("") if paths else ""
    state = "\n".join([distribution.version, distribution.read_text("RECORD") or "", *sources])
    return Snapshot(
        name=distribution.metadata["Name"],
        version=distribution.version,
        fingerprint=hashlib.sha256(state.encode(errors="surrogateescape")).hexdigest(),
        files=frozenset(f"{folder}/{path}" for path in paths if path.endswith(".py")),
        root=root,
        sources=sources,
        foreign=foreign,
        compiled=any(path.endswith(_COMPILED_SUFFIXES) for path in paths),
    )


def refresh_caches() -> None:
    """Invalidate the caches of the import system, so that it sees new, changed and removed files."""
    importlib.invalidate_caches()
    MetadataPathFinder().invalidate_caches()  # Python 3.11 caches each state of a folder
    linecache.checkcache()


def unload(owners: Collection[Snapshot]) -> Callable[[], None]:
    """Remove the modules of some distributions from `sys.modules`, so that they are imported afresh.

    Requests in flight and the running generation go on with the old modules. The function returned puts them back, in
    place of those imported since. A namespace package stays while it has modules of other distributions.
    """
    modules = sys.modules.copy()
    found = {name: module for name, module in modules.items() if any(each.owns(module) for each in owners)}
    others = modules.keys() - found.keys()
    namespaces = [name for name, module in found.items() if getattr(module, "__file__", None) is None]
    shared = {name: found.pop(name) for name in namespaces if any(each.startswith(f"{name}.") for each in others)}
    for name, module in found.items():
        del sys.modules[name]
        if bytecode := getattr(module, "__cached__", None):
            with suppress(OSError):
                Path(bytecode).unlink()  # Python compares its time with the source's in whole seconds only

    def restore() -> None:
        unload(owners)
        sys.modules.update(found)
        for name, module in found.items():
            namespace, _, child = name.rpartition(".")
            if namespace in shared:
                setattr(shared[namespace], child, module)

    return restore


def editable_root(distribution: InstalledDistribution) -> str | None:
    """Return the project folder of an editable install, or None."""
    url = (distribution.direct_url or {}).get("url", "") if distribution.is_editable else ""
    return unquote(urlsplit(url).path).rstrip("/") or None


def file_states(root: str, foreign: Collection[str] = ()) -> Iterator[str]:
    """Yield the path, size and time of each source file below a folder, except in foreign folders.

    Folders such as `docs` and `tests` are skipped only at the top of a project: deeper, they belong to its packages. So
    are TOML and JSON files: at the top, they are settings and the like, which `plughost disable` writes.
    """
    for folder, folders, files in os.walk(root):
        if folder in foreign or not _FOREIGN_MARKERS.isdisjoint(files):
            folders.clear()
            continue
        is_top = folder == root and "__init__.py" not in files
        ignored, suffixes = (_IGNORED_AT_TOP, _SOURCE_SUFFIXES_AT_TOP) if is_top else (_IGNORED, _SOURCE_SUFFIXES)
        folders[:] = sorted(name for name in folders if name not in ignored and not name.startswith("."))
        for path in (Path(folder, name) for name in sorted(files) if name.endswith(suffixes)):
            try:
                state = path.stat()
            except OSError:  # an editor's dangling lock file, or a file just removed
                continue
            yield f"{path} {state.st_size} {state.st_mtime_ns}"


_FOREIGN_MARKERS: Final = frozenset({"pyvenv.cfg", "host.lock"})
"""Files that mark a virtual environment, or the data folder of a host that was started in the project."""

_IGNORED: Final = frozenset({"node_modules", "__pycache__"})
_IGNORED_AT_TOP: Final = _IGNORED | {"tests", "build", "dist", "docs", "bench", "plugins"}


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")
