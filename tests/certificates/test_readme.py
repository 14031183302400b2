"""The settings that certs/README.md shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plughost._settings.sources import read_settings

README = Path(__file__).parents[2] / "certs" / "README.md"


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", README.read_text(), re.DOTALL))
def test_settings_of_the_readme_are_valid(tmp_path: Path, example: str) -> None:
    """Every settings example can be pasted into `plughost.toml`."""
    (tmp_path / "plughost.toml").write_text(example)
    assert read_settings(tmp_path / "plughost.toml", {}).raw
