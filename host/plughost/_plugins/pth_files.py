"""The `.pth` files that `pip install -e` has added to site-packages since the process started.

They make editable installs importable. Python reads them only when it starts, so a running host loads new ones, and
undoes those that were removed.
"""

from __future__ import annotations

import re
import site
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plughost._plugins.environment import Environment

_IMPORT: Final = re.compile(r"^import\s+(\w+)", re.MULTILINE)


class _PthFile(NamedTuple):
    """A `.pth` file at one moment, with the modules in its folder that it imports.

    Other modules are not its own: `distutils-precedence.pth` imports `os`.
    """

    modified: int
    folders: tuple[str, ...]
    modules: tuple[str, ...]


class PthFiles:
    """The `.pth` files of site-packages that this process has loaded."""

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
