"""Builds the distribution as setuptools does, and the site first where it goes into a wheel.

An installation in place has no site until `./dev docs` builds it: that needs nothing that takes long to install.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

HERE: Final = Path(__file__).resolve().parent


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what the site is built with, beside what setuptools wants."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [*build_meta.get_requires_for_build_wheel(config_settings), *(each for each in lines if each[0] != "#")]


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the site, then the wheel with it."""
    command = [sys.executable, str(HERE / "build_site.py"), str(HERE / "src" / "plughost_docs" / "html")]
    subprocess.run(command, check=True)  # noqa: S603 - our own program  # nosec B603
    return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
