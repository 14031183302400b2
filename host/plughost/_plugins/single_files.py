"""Single-file plugins: Python files in the folder `plugins_dir`, for development, not installed."""

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
    from collections.abc import Iterator
    from pathlib import Path

_MODULE_PREFIX: Final = "plughost_single_file_"


def single_files(folder: Path) -> Iterator[metadata.Distribution]:
    """Yield a distribution for each Python file of a folder whose name does not begin with an underscore."""
    files = sorted(folder.glob("*.py"))
    return (_SingleFile(file) for file in files if not file.name.startswith("_"))


def file_of(point: metadata.EntryPoint) -> Path | None:
    """Return the single file of an entry point, or None if it points to an installed module."""
    return vars(point).get("file")


class _EntryPoint(metadata.EntryPoint):
    """An entry point for a file that is not on `sys.path`."""

    def load(self) -> Any:
        if self.value in sys.modules:
            return sys.modules[self.value]
        spec = importlib.util.spec_from_file_location(self.value, vars(self)["file"])
        assert spec is not None, "it is a Python file"
        assert spec.loader is not None, "it is a Python file"
        module = sys.modules[self.value] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[self.value]
            raise
        return module


class _SingleFile(metadata.Distribution):
    """A file as a distribution, with the file's name and version 0."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._name = file.name.encode(errors="backslashreplace").decode()  # it may not be valid UTF-8
        stem = self._name.removesuffix(".py")
        module = re.sub(r"\W", "_", f"{_MODULE_PREFIX}{stem}")
        point = _EntryPoint(stem.replace("_", "-"), module, ENTRY_POINT_GROUP)
        vars(point)["file"] = file
        self._points = metadata.EntryPoints([point])

    @property
    def entry_points(self) -> metadata.EntryPoints:
        return self._points

    def read_text(self, filename: str) -> str | None:
        if filename == "RECORD":
            digest = base64.urlsafe_b64encode(hashlib.sha256(self._file.read_bytes()).digest()).rstrip(b"=").decode()
            return f"{self._name},sha256={digest},\n"
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 0\n" if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        return self._file.parent / path
