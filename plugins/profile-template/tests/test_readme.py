"""The README, from which authors copy, matches the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import plughost_profile_template
from plughost_profile_template.models import VIEWS
from plughost_profile_template.settings import Settings

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PACKAGE = Path(plughost_profile_template.__file__).parent


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_settings_are_shown_with_their_defaults() -> None:
    """Each setting is listed with its default."""
    (table,) = blocks("toml")
    shown = tomllib.loads(table)["plugins"]["profile-template"]
    assert list(shown) == list(Settings.model_fields)
    assert Settings(**shown) == Settings()


def test_quoted_code_exists() -> None:
    """The README's lines of Python are lines of this plugin."""
    code = [file.read_text(encoding="utf-8") for file in PACKAGE.glob("*.py")]
    assert blocks("python")
    assert all(any(block in text for text in code) for block in blocks("python"))


def test_every_file_is_explained() -> None:
    """The table of files lists exactly the existing ones."""
    named = set(re.findall(r"^\| `(\w+\.py)`", README, re.MULTILINE))
    assert named == {file.name for file in PACKAGE.glob("*.py")} - {"__init__.py"}


def test_the_versions_are_named() -> None:
    """The README names each minor version."""
    assert all(f"`{version}`" in README for version in VIEWS)
