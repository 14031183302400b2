"""This checkout's plugins as wheels, installed into and removed from a test's own environment."""

from __future__ import annotations

import configparser
import shutil
import zipfile
from pathlib import Path
from typing import Final

from tests.host.packages import remove_package
from tests.operations.wheels import build_wheel

ROOT: Final = Path(__file__).parents[2]


def checkout_wheel(folder: Path, plugin: str, *, version: str | None = None, **changes: tuple[str, str]) -> Path:
    """Write a wheel of a plugin as it is in this checkout.

    Args:
        folder: Where to.
        plugin: The plugin's folder below `plugins/`.
        version: A version to give it instead of its own.
        **changes: Module of the package to a text of it and what is to stand in its place.
    """
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "plugins" / plugin / "setup.cfg")
    source = ROOT / "plugins" / plugin / "src"
    files = {
        path.relative_to(source).as_posix(): path.read_text()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    for module, (old, new) in changes.items():
        (path,) = (path for path in files if path.endswith(f"/{module}.py"))
        assert old in files[path], f"{path} has no {old!r}"
        files[path] = files[path].replace(old, new)
    points = config["options.entry_points"] if config.has_section("options.entry_points") else {}
    entries = "".join(f"[{group}]{lines}\n" for group, lines in points.items())
    return build_wheel(
        folder,
        config["metadata"]["name"],
        version or config["metadata"]["version"],
        files,
        requires=config["options"]["install_requires"].strip().split("\n"),
        entry_points=entries,
    )


def install(site: Path, wheel: Path) -> None:
    """Install a wheel into an environment's folder, in place of another version, as pip would."""
    uninstall(site, wheel.name.split("-")[0])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def uninstall(site: Path, name: str) -> None:
    """Remove a distribution and its byte code from an environment."""
    remove_package(site, name)
    shutil.rmtree(site / name.replace("-", "_"), ignore_errors=True)
