"""What rows and names are to both engines."""

from __future__ import annotations

from typing import Any

Row = tuple[Any, ...]


def quote(name: str) -> str:
    """Return the name of a table as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'
