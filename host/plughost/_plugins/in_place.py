"""In place: what `pip install -e` has added to site-packages since the process started.

Python reads the `.pth` files there when it starts, and never again. What they name is what makes such a distribution
importable, so a running host reads those that are new, and forgets those that are gone.
"""

from __future__ import annotations

import re
import site
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from plughost._plugins.environment import Environment

_FINDER: Final = re.compile(r"^import\s+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _PathFile:
    """A `.pth` file at one moment: when it was written, the folders that it names, and the modules that it imports.

    Only those that lie beside it are its own: `distutils-precedence.pth` imports `os`.
    """

    written: int
    folders: tuple[str, ...]
    finders: tuple[str, ...]


class PathFiles:
    """The `.pth` files of site-packages, as far as this process has read them."""

    def __init__(self) -> None:
        """Take those that are there as read: Python has just started."""
        self._read = dict(_path_files())

    def forget_removed(self) -> None:
        """Undo what files did that are gone, or are written anew."""
        now = dict(_path_files())
        for path, before in list(self._read.items()):
            if now.get(path) == before:
                continue
            del self._read[path]
            still_named = {folder for each in self._read.values() for folder in each.folders}
            sys.path[:] = [each for each in sys.path if each not in before.folders or each in still_named]
            sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__module__", "") not in before.finders]
            for name in before.finders:
                sys.modules.pop(name, None)

    def read_new(self, environment: Environment, plugins: Collection[str]) -> None:
        """Do what new files say, as Python does at its start: only those of what is installed in place.

        Args:
            environment: What is installed.
            plugins: Normalised names of the distributions that plugins are made of. No others are read.
        """
        found = dict(_path_files())
        for key in sorted(plugins):
            distribution = environment.installed[key]
            if not distribution.is_editable:
                continue
            for file in distribution.files or ():
                path = Path(str(distribution.locate_file(file)))
                if path in found and path not in self._read:
                    self._read[path] = found[path]
                    site.addpackage(str(path.parent), path.name, None)


def _path_files() -> Iterator[tuple[Path, _PathFile]]:
    for folder in {*site.getsitepackages(), site.getusersitepackages()} & set(sys.path):
        for path in Path(folder).glob("*.pth"):
            with suppress(OSError):  # pip removes it just now
                text = path.read_text(encoding="utf-8", errors="replace")
                lines = filter(None, map(str.strip, text.splitlines()))  # an empty one would name site-packages itself
                folders = tuple(str((path.parent / line).absolute()) for line in lines)
                finders = tuple(each for each in _FINDER.findall(text) if path.with_name(f"{each}.py").exists())
                yield path, _PathFile(path.stat().st_mtime_ns, folders, finders)
