"""Discovery: what is installed, read anew at each reload, without an import; and what of it can be reused."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import os
import re
import site
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from plughost._plugins.distributions import Snapshot, unload
from plughost._plugins.environment import ENTRY_POINT_GROUP, HOST, Environment
from plughost._plugins.registry import Registry, State

_IMPORT: Final = re.compile(r"^import\s+(\w+)", re.MULTILINE)


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


def restart_reasons(
    now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot], shared: Collection[str]
) -> tuple[str, ...]:
    """Return why this process can't serve the changed distributions, so that a restart is needed.

    Python can't import compiled modules twice, and a running host can't replace its own requirements (`shared`).
    Without the host's own distribution, its environment is gone, with all plugins: another Python made it anew.
    """
    if HOST in imported and HOST not in now:
        return (f"{HOST} can't be found any more: its environment was removed or made anew",)
    return tuple(
        f"{imported[key].name} changed from {imported[key].version} to {now[key].version} on disk, "
        + ("and the host itself runs on it" if key in shared else "and it brings compiled modules")
        for key in sorted(_changed(now, imported))
        if key in shared or now[key].compiled or imported[key].compiled
    )


def reuse_unchanged(
    registry: Registry, running: Registry, environment: Environment, imported: Mapping[str, Snapshot]
) -> Callable[[], None]:
    """Reuse unchanged plugins. Unload the code of changed distributions, and of those that import them.

    The function returned puts the unloaded modules back, if the next generation is refused.
    """
    outdated = _outdated(environment, imported_snapshots(registry, environment), imported)
    for record in registry.active():
        previous = running.get(record.name)
        if previous is None or previous.state is not State.ACTIVE or record.installed.closure & outdated:
            continue
        if previous.installed.distribution == record.installed.distribution:
            registry.reuse(record, previous)
    return unload([*environment.snapshots(outdated).values(), *(imported[key] for key in outdated & imported.keys())])


def imported_snapshots(registry: Registry, environment: Environment) -> dict[str, Snapshot]:
    """Return snapshots of the distributions that a generation is about to import, and of the host's own.

    Take them before the import: the next reload then imports what was saved meanwhile.
    """
    return environment.snapshots(environment.shared.union(*(each.installed.closure for each in registry.active())))


def unload_removed(previous: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """Unload the modules of distributions that no plugin needs any more. Return those that stay imported.

    Compiled modules stay. A later replacement needs a restart.
    """
    compiled = {key: each for key, each in previous.items() if each.compiled}
    unload([each for key, each in previous.items() if key not in after and key not in compiled])
    return {**compiled, **after}


def _changed(now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot]) -> set[str]:
    """Return the distributions that have changed since this process imported them."""
    return {key for key, each in now.items() if key in imported and imported[key].fingerprint != each.fingerprint}


def _outdated(
    environment: Environment, now: Mapping[str, Snapshot], imported: Mapping[str, Snapshot]
) -> frozenset[str]:
    """Return the changed distributions, and all that require or import them, directly or indirectly.

    Imports count, too, since authors forget to declare requirements.
    """
    new = _changed(now, imported)
    if not new:  # as at most reloads; to look for the modules' owners takes long
        return frozenset()
    outdated: set[str] = set()
    modules = {name: module for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)}
    own_modules = {
        key: {name: module for name, module in modules.items() if each.owns(module)}
        for key, each in imported.items()
        if key not in environment.shared
    }
    while new:
        outdated |= new
        names = {name for key in outdated for name in own_modules.get(key, ())}
        requiring = environment.dependents(outdated).keys() & now.keys()
        importing = {
            key
            for key in own_modules.keys() - outdated
            if any(_module_imports(each, names) for each in own_modules[key].values())
        }
        new = (requiring | importing) - outdated
    return frozenset(outdated)


def _module_imports(module: ModuleType, names: Collection[str]) -> bool:
    if any(isinstance(each, ModuleType) and each.__name__ in names for each in list(vars(module).values())):
        return True
    top_packages = {name.partition(".")[0] for name in names}
    try:
        source = Path(module.__file__ or "").read_bytes()
        # Parse only candidates, to save time. In the same top package, imports can be relative.
        may_be_relative = module.__name__.partition(".")[0] in top_packages
        if not may_be_relative and not any(name.encode() in source for name in top_packages):
            return False
        return any(name in names for name in _imported_names(ast.parse(source), module))
    except (OSError, SyntaxError, ValueError):
        return False


def _imported_names(tree: ast.AST, module: ModuleType) -> Iterator[str]:
    """Yield the names that a module's import statements may import, at any level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # it can't work, such as a relative import outside of a package
                base = resolve_name("." * node.level + (node.module or ""), module.__package__)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
