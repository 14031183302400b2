"""The command line `plughost`."""

from __future__ import annotations

from plughost.cli.main import main

__all__ = ["main"]
