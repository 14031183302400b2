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
    """

    key: str
    value: Any
    default: Any
    source: str
