"""Installed distributions: their metadata, read once, and their code on disk, to find what changed and to unload it."""

from __future__ import annotations

import csv
import email
import hashlib
import importlib
import json
import linecache
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from functools import cached_property, lru_cache
from importlib import metadata as installation
from importlib.metadata import Distribution, EntryPoint, EntryPoints, MetadataPathFinder, PackagePath
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from plughost._controls import escape_controls

# What importlib.metadata raises on malformed or unreadable files.
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, OSError, csv.Error)

_COMPILED_SUFFIXES: Final = (".so", ".pyd", ".dylib")
_SOURCE_SUFFIXES: Final = (".py", ".sql", ".html", ".css", ".js", ".json", ".toml")
_SOURCE_SUFFIXES_AT_TOP: Final = (".py", ".sql", ".html", ".css", ".js")
_FOREIGN_MARKERS: Final = frozenset({"pyvenv.cfg", "host.lock"})
"""Files that mark a virtual environment, or the data folder of a host that was started in the project."""
_IGNORED: Final = frozenset({"node_modules", "__pycache__"})
_IGNORED_AT_TOP: Final = _IGNORED | {"tests", "build", "dist", "docs", "bench", "plugins"}


def find_distributions(
    distributions: Iterable[Distribution] | None = None, *, leftover: bool = False
) -> Iterator[InstalledDistribution]:
    """Yield the installed distributions, by default those on `sys.path`.

    Folders with a `~` are not among them: pip moves them aside, and they stay if it is killed. `leftover` yields these.
    """
    found = map(InstalledDistribution, installation.distributions() if distributions is None else distributions)
    return (each for each in found if each.folder.startswith("~") is leftover)


class InstalledDistribution(Distribution):
    """A distribution, read once. Malformed files raise nothing, and control characters in them are escaped.

    `importlib.metadata` parses the whole file at each access, with the long description. That took most of the time of
    discovery, and so of each command and each reload.
    """

    def __init__(self, found: Distribution) -> None:
        self._found = found
        self._damage: list[str] = []

    @property
    def damage(self) -> str | None:
        """Which of its metadata can't be read, and why. None if everything needed can be read."""
        _ = self.metadata, self.entry_points
        return "; ".join(self._damage) or None

    @cached_property
    def metadata(self) -> Any:
        """The fields, without a description in the body.

        If the file has no name, name and version are those of the folder's name, as for pip.
        """
        try:
            # As importlib.metadata: a folder or, from old tools, a file.
            texts = map(self._found.read_text, ("METADATA", "PKG-INFO", ""))
            text = next((each for each in texts if each is not None), None)
            message = self._found.metadata if text is None else _parse_header(text.partition("\n\n")[0])
            if (message.get_all("Name") or [""])[0]:
                return message
            self._damage.append("METADATA is missing or names no distribution")
        except _UNREADABLE as error:
            self._damage.append(f"METADATA can't be read: {error}")
        name, _, version = self.folder.removesuffix(".dist-info").partition("-")
        return _parse_header(f"Name: {name}\nVersion: {version}" if name and version else "")

    @cached_property
    def version(self) -> str:
        """Its version, or `unknown` if its metadata has none."""
        return next(filter(None, self.metadata.get_all("Version") or ()), "unknown")

    @cached_property
    def entry_points(self) -> EntryPoints:
        """Its entry points. Empty if they can't be read."""
        try:
            found = EntryPoints(map(_escaped, self._found.entry_points))
            problem = None if found else self._open_problem("entry_points.txt")
        except _UNREADABLE:
            found, problem = EntryPoints(()), self._bad_line()
        if problem is not None:
            self._damage.append(f"entry_points.txt can't be read: {problem}")
        return found

    @property
    def files(self) -> list[PackagePath] | None:
        """Its files. None if its RECORD can't be read."""
        try:
            return self._found.files
        except _UNREADABLE:
            return None

    def read_text(self, filename: str) -> str | None:
        """Return the text of a metadata file, or None if it is missing or can't be read."""
        try:
            return self._found.read_text(filename)
        except _UNREADABLE:
            return None

    @cached_property
    def direct_url(self) -> Mapping[str, Any] | None:
        """Its origin, from `direct_url.json` (PEP 610). None if it came from an index."""
        text = self.read_text("direct_url.json")
        if not text:
            return None
        infos = ("archive_info", "dir_info", "vcs_info")
        try:
            content = json.loads(text)
            fields = content.items() if isinstance(content, dict) else ()
            origin = {key: value for key, value in fields if isinstance(value, dict if key in infos else str)}
            os.access(unquote(urlsplit(str(origin.get("url", ""))).path), os.F_OK)  # raises where no path can be so
        except (ValueError, RecursionError):
            return {}  # not from an index, but the origin is lost
        return origin

    @property
    def is_editable(self) -> bool:
        """Whether it is an editable install, from a folder with its sources."""
        return bool((self.direct_url or {}).get("dir_info", {}).get("editable"))

    @property
    def is_requested(self) -> bool:
        """Whether a user asked for it by name, not another distribution (PEP 376, REQUESTED)."""
        return self.read_text("REQUESTED") is not None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return the path of a file of the distribution."""
        return self._found.locate_file(path)

    @property
    def folder(self) -> str:
        """The name of its metadata folder. Empty if it has none on disk."""
        # No public attribute has it; pip uses this one, too. In a ZIP file, it is no path on the disk.
        return escape_controls(PurePath(str(getattr(self._found, "_path", ""))).name)

    def _open_problem(self, filename: str) -> str | None:
        """Return why a metadata file can't be opened. None if it can, or is missing; `read_text` doesn't tell."""
        path: Any = getattr(self._found, "_path", None)  # see `folder`
        try:
            if path is not None:
                path.joinpath(filename).open("rb").close()
        except (FileNotFoundError, NotADirectoryError, LookupError):
            pass
        except OSError as error:
            return error.strerror
        return None

    def _bad_line(self) -> str:
        """Return why entry_points.txt can't be parsed: its first invalid line."""
        lines = map(str.strip, (self.read_text("entry_points.txt") or "").splitlines())
        invalid = next((line for line in lines if line and line[0] not in "[#;" and "=" not in line), None)
        return "it is no text" if invalid is None else f"the line {invalid!r} has no ="


def record_of(distribution: Distribution) -> list[list[str]]:
    """Return the rows of a distribution's RECORD: path, hash and size, if recorded. Empty if it can't be read.

    The paths are relative, with slashes. `Distribution.files` takes ten times as long.
    """
    try:
        return [row for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()) if row]
    except csv.Error:
        return []


@lru_cache(maxsize=1024)  # each reload, and each host of a test, parses the same ones again
def _parse_header(text: str) -> Message:
    return email.message_from_string(escape_controls(text))


def _escaped(point: EntryPoint) -> EntryPoint:
    fields = point.name, point.value, point.group
    clean = tuple(map(escape_controls, fields))
    return point if clean == fields else EntryPoint(*clean)


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
        file = getattr(module, "__file__", None)
        if file is None:
            paths = [str(path) for path in getattr(module, "__path__", ())]
            return bool(paths) and all(
                self._under_root(path) or any(each.startswith(path + "/") for each in self.files) for path in paths
            )
        return file in self.files or self._under_root(file)

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


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")
