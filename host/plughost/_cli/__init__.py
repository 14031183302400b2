"""The command line `plughost`."""

from __future__ import annotations

from plughost._cli.main import main

__all__ = ["main"]
