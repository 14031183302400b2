"""Packages as pip leaves them: files in a folder on `sys.path`, with metadata beside them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path


class InFolder(list[metadata.Distribution]):
    """The distributions in some folders, looked up at each access."""

    def __init__(self, *folders: Path) -> None:
        """Store the folders."""
        super().__init__()
        self.folders = [str(each) for each in folders]

    def __iter__(self) -> Iterator[metadata.Distribution]:
        return iter(list(metadata.distributions(path=self.folders)))


def write_package(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
    entry_points: str | None = None,
) -> None:
    """Install a distribution into a folder, in place of an earlier version of it.

    Args:
        folder: The folder.
        name: The distribution's name.
        files: Path to content.
        version: Its version.
        requires: What it requires, as pip writes it.
        entry_points: The content of `entry_points.txt`.
    """
    remove_package(folder, name)
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    contents = {**files, f"{info}/METADATA": "\n".join(lines) + "\n"}
    if entry_points is not None:
        contents[f"{info}/entry_points.txt"] = entry_points
    record = ""
    for path, content in contents.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        record += f"{path},sha256={hashlib.sha256(content.encode()).hexdigest()},{len(content)}\n"
    (folder / info / "RECORD").write_text(record)


def remove_package(folder: Path, name: str) -> None:
    """Uninstall a distribution and its byte code, as installers do: Python checks byte code's age in whole seconds."""
    for info in folder.glob(f"{name.replace('-', '_')}-*.dist-info"):
        for line in (info / "RECORD").read_text().splitlines():
            file = folder / line.partition(",")[0]
            file.unlink(missing_ok=True)
            for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
                compiled.unlink()
        shutil.rmtree(info)


def plugin_entry(name: str, target: str) -> str:
    """Return the `entry_points.txt` of a distribution with one plugin."""
    return f"[plughost.plugins]\n{name} = {target}\n"


def speaker_source(word: str, prefix: str, head: str = "") -> str:
    """Return the source of a plugin module that answers with a word below a prefix."""
    return f"""{head}
from plughost import Operation, Route, RouteGroup, hookimpl

WORD = {word}


class Says:
    count = 0

    def on_get(self, req, resp):
        self.count += 1
        resp.media = {{"word": WORD, "count": self.count}}


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="{prefix}", routes=(Route("", Says(), {{"GET": Operation(summary="Say")}}),))]
"""
