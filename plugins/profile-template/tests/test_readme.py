"""The README, which is there to be copied from, says what the code does."""

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
    """Each setting is there, with the value that it has where nobody sets it."""
    (table,) = blocks("toml")
    shown = tomllib.loads(table)["plugins"]["profile-template"]
    assert list(shown) == list(Settings.model_fields)
    assert Settings(**shown) == Settings()


def test_what_is_quoted_is_in_the_code() -> None:
    """Lines of Python are lines of this plugin."""
    code = [file.read_text(encoding="utf-8") for file in PACKAGE.glob("*.py")]
    assert blocks("python")
    assert all(any(block in text for text in code) for block in blocks("python"))


def test_every_file_is_explained() -> None:
    """The table of files names those that there are."""
    named = set(re.findall(r"^\| `(\w+\.py)`", README, re.MULTILINE))
    assert named == {file.name for file in PACKAGE.glob("*.py")} - {"__init__.py"}


def test_the_versions_are_named() -> None:
    """A new minor version is told to readers as well."""
    assert all(f"`{version}`" in README for version in VIEWS)
