"""Settings as they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """A setting as it is in force.

    Attributes:
        key: Its dotted key.
        value: Its value. Secrets are masked.
        default: What it is where nobody sets it.
        source: `default`, the file's name, or the environment variable's.
        description: What it is for, and its unit, as its model says. Empty where that says nothing.
        example: A value it may have, the first of its model's `examples`. None where that has none.
    """

    key: str
    value: Any
    default: Any
    source: str
    description: str = ""
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """What changing a setting would do to the settings file.

    Attributes:
        key: The setting's dotted key.
        diff: The lines of the file that change, as a unified diff. Empty where none does.
        at_restart: Whether it takes effect at the next start only.
    """

    key: str
    diff: str
    at_restart: bool
