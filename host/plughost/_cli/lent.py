"""Commands of plugins that stand beside the host's own."""

from __future__ import annotations

from typing import Final

LENT: Final = {
    "bundle": "packages",
    "install": "packages",
    "lock": "packages",
    "migrate": "scaffold",
    "new": "scaffold",
    "uninstall": "packages",
}
"""Each command, and the plugin that brings it: `plughost install` is `plughost packages install`."""
