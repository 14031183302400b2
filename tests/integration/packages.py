"""Wheels, installed into and removed from a test's own environment."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from tests.host.packages import remove_package


def install(site: Path, wheel: Path) -> None:
    """Install a wheel into an environment's folder, in place of another version, as pip would."""
    uninstall(site, wheel.name.split("-")[0])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def uninstall(site: Path, name: str) -> None:
    """Remove a distribution and its byte code from an environment."""
    remove_package(site, name)
    shutil.rmtree(site / name.replace("-", "_"), ignore_errors=True)
