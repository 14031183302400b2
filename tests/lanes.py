"""The ways to reach a host: engine, scheme and protocol version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Lane:
    """One way to reach a host, or an application on an engine alone."""

    engine: Literal["waitress", "granian"]
    scheme: Literal["http", "https"]
    http2: bool = False

    def __str__(self) -> str:
        """Return the lane's name in test ids."""
        return f"{self.engine}-{self.scheme}-{2 if self.http2 else 1}"


LANES = (
    Lane("waitress", "http"),
    Lane("granian", "http"),
    Lane("granian", "https"),
    Lane("granian", "https", http2=True),
)
