"""Discovery: what is installed, read anew at each reload, without an import."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import site
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from plughost._plugins.environment import ENTRY_POINT_GROUP, Environment

_LOGGER: Final = logging.getLogger("plughost._plugins")
_POLL_SECONDS: Final = 0.05
_IMPORT: Final = re.compile(r"^import\s+(\w+)", re.MULTILINE)


def wait_for_change(interrupted: Callable[[], bool], *, to_end: bool) -> None:
    """Wait while `plughost install` or `uninstall` runs pip here: what it replaces is missing for a moment.

    Such a command locks a file, which names the distributions while their files change. Its own reload follows; with
    `to_end`, wait for that, too. A user who may not read the file doesn't wait.
    """
    waits = False
    with suppress(OSError), Path(sys.prefix, ".plughost.lock").open("rb") as file:
        while (to_end or os.fstat(file.fileno()).st_size) and not interrupted():
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waits:
                    _LOGGER.warning("waiting until a command that changes installed packages has ended")
                waits = True
                threading.Event().wait(_POLL_SECONDS)
            else:
                return


class MemoryDistribution(metadata.Distribution):
    """A distribution of one plugin, with metadata that exist only in memory."""

    def __init__(self, text: str, plugin: str, value: str, load: Callable[[], Any], file: Path | None = None) -> None:
        self._text = text
        point = metadata.EntryPoint(plugin, value, ENTRY_POINT_GROUP)
        vars(point).update(load=load, file=file)  # its object is in no module on `sys.path`
        self._points = metadata.EntryPoints([point])

    @property
    def entry_points(self) -> metadata.EntryPoints:
        return self._points

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        raise FileNotFoundError(path)


class _SingleFile(MemoryDistribution):
    """A file as a distribution, with the file's name and version 0."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._name = file.name.encode(errors="backslashreplace").decode()  # it may not be valid UTF-8
        stem = self._name.removesuffix(".py")
        self._module = re.sub(r"\W", "_", f"plughost_single_file_{stem}")
        text = f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 0\n"
        super().__init__(text, stem.replace("_", "-"), self._module, self._load, file)

    def read_text(self, filename: str) -> str | None:
        if filename != "RECORD":
            return super().read_text(filename)
        digest = base64.urlsafe_b64encode(hashlib.sha256(self._file.read_bytes()).digest()).rstrip(b"=").decode()
        return f"{self._name},sha256={digest},\n"

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return self._file.parent / path

    def _load(self) -> Any:
        if self._module in sys.modules:
            return sys.modules[self._module]
        spec = importlib.util.spec_from_file_location(self._module, self._file)
        assert spec is not None, "it is a Python file"
        assert spec.loader is not None, "it is a Python file"
        module = sys.modules[self._module] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[self._module]
            raise
        return module


class _PthFile(NamedTuple):
    """A `.pth` file at one moment, with the modules in its folder that it imports.

    Other modules are not its own: `distutils-precedence.pth` imports `os`.
    """

    modified: int
    folders: tuple[str, ...]
    modules: tuple[str, ...]


class PthFiles:
    """The `.pth` files of site-packages that this process has loaded.

    They make editable installs importable. Python reads them only when it starts, so a running host loads new ones, and
    undoes those that were removed.
    """

    def __init__(self) -> None:
        """Register the existing files as loaded: Python has just started."""
        self._loaded = _pth_files()

    def unload_removed(self) -> None:
        """Undo the effects of files that were removed or changed."""
        unchanged = dict(self._loaded.items() & _pth_files().items())
        still_used = {folder for each in unchanged.values() for folder in each.folders}
        for old in (each for path, each in self._loaded.items() if path not in unchanged):
            sys.path[:] = [each for each in sys.path if each not in old.folders or each in still_used]
            sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__module__", "") not in old.modules]
            for name in old.modules:
                sys.modules.pop(name, None)
        self._loaded = unchanged

    def load_new(self, environment: Environment, plugins: Iterable[str]) -> None:
        """Load new files of editable installs, as Python does when it starts.

        `plugins` are the distributions of plugins and their requirements, by normalised name. Others are not loaded.
        """
        current = _pth_files()
        editable = (environment.installed[key] for key in sorted(plugins) if environment.installed[key].is_editable)
        files = (Path(str(each.locate_file(file))) for each in editable for file in each.files or ())
        for path in files:
            if path in current and path not in self._loaded:
                self._loaded[path] = current[path]
                site.addpackage(str(path.parent), path.name, None)


def _pth_files() -> dict[Path, _PthFile]:
    found = {}
    for folder in {*site.getsitepackages(), site.getusersitepackages()} & set(sys.path):
        for path in Path(folder).glob("*.pth"):
            with suppress(OSError):  # pip is removing it
                text = path.read_text(encoding="utf-8", errors="replace")
                lines = filter(None, map(str.strip, text.splitlines()))  # an empty line would name site-packages itself
                folders = tuple(str((path.parent / line).absolute()) for line in lines)
                modules = tuple(each for each in _IMPORT.findall(text) if path.with_name(f"{each}.py").exists())
                found[path] = _PthFile(path.stat().st_mtime_ns, folders, modules)
    return found


class Discovery:
    """Discovers what is installed, at each reload."""

    def __init__(
        self, distributions: Callable[[], Iterable[metadata.Distribution]] | None, folder: Path | None
    ) -> None:
        """Discover what `distributions` returns, by default all on `sys.path`, and the single files of a folder.

        Files whose name begins with an underscore are not plugins.
        """
        self._distributions = distributions or metadata.distributions
        self._folder = folder
        self._pth_files = PthFiles()

    def discover(self, allowed: Collection[str] | None) -> Environment:
        """Return what is installed now. Plugins that are not allowed have a problem, so they are never imported."""
        self._pth_files.unload_removed()
        files = sorted(self._folder.glob("[!_]*.py")) if self._folder is not None else ()
        environment = Environment([*self._distributions(), *map(_SingleFile, files)], allowed=allowed)
        usable = [each for each in environment.plugins if not each.problem]
        self._pth_files.load_new(environment, {key for each in usable for key in each.closure})
        return environment
