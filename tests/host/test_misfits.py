"""Values that pydantic takes for those of a setting, in tables with free keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ByteSize

from plughost._settings.errors import SettingsError
from plughost._settings.sources import Settings, read_settings


class Shelf(BaseModel):
    """A table in a mapping."""

    depth: int = 1
    is_locked: bool = False


class Rack(BaseModel):
    """A plugin's settings, with tables of free keys."""

    shelves: dict[str, Shelf] = {}
    sizes: dict[str, ByteSize] = {}


def read(text: str, folder: Path) -> Settings:
    """Read settings from a file with this text."""
    file = folder / "plughost.toml"
    file.write_text(text)
    return read_settings(file, {})


def test_a_key_of_a_mapping_is_no_member_of_its_tables(tmp_path: Path) -> None:
    """A shelf may be called as a number that shelves have, and may be locked nevertheless."""
    settings = read("[plugins.rack.shelves.depth]\nis_locked = true", tmp_path)
    assert settings.plugin_settings("rack", Rack).shelves["depth"].is_locked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[plugins.rack.sizes]\na = '10,5 MB'", "sizes.a: must be a size in bytes"),
        ("[plugins.rack.shelves.a]\ndepth = true", "shelves.a.depth: must be a number, not true"),
    ],
)
def test_the_values_of_a_mapping_are_checked(text: str, message: str, tmp_path: Path) -> None:
    """They are checked as those of any other table."""
    with pytest.raises(SettingsError, match=message):
        read(text, tmp_path).plugin_settings("rack", Rack)
