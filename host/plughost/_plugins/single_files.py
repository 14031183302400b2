"""Plugins of a single file in the folder `plugins_dir`, for development; and distributions that are only in memory."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from plughost._plugins.discovery import ENTRY_POINT_GROUP

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from pathlib import Path

_MODULE_PREFIX: Final = "plughost_single_file_"


def single_files(folder: Path) -> Iterator[metadata.Distribution]:
    """Yield a distribution for each Python file of a folder whose name does not begin with an underscore."""
    files = sorted(folder.glob("*.py"))
    return (_SingleFile(file) for file in files if not file.name.startswith("_"))


def file_of(point: metadata.EntryPoint) -> Path | None:
    """Return the single file of an entry point, or None if it points to something else."""
    return vars(point).get("file")


class _EntryPoint(metadata.EntryPoint):
    """An entry point that loads by a function: its object is in no module on `sys.path`."""

    def load(self) -> Any:
        return vars(self)["function"]()


class MemoryDistribution(metadata.Distribution):
    """A distribution of one plugin, with metadata that exist only in memory."""

    def __init__(self, text: str, plugin: str, value: str, load: Callable[[], Any], file: Path | None = None) -> None:
        self._text = text
        point = _EntryPoint(plugin, value, ENTRY_POINT_GROUP)
        vars(point).update(function=load, file=file)
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
        self._module = re.sub(r"\W", "_", f"{_MODULE_PREFIX}{stem}")
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
