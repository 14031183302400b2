"""Tracebacks of plugins' code, for whoever mends it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_HEAD: Final = "Traceback (most recent call last):"
_PLACE: Final = re.compile(r'  File "([^"]*)", line [0-9]+')


def own_frames(trace: str) -> str:
    """Return a traceback from the plugin's first frame on; the whole of one that has none of a plugin."""
    shown: list[str] = []
    leading = skipped = found = False
    for line in trace.splitlines():
        place = _PLACE.match(line)
        if place:
            skipped = leading = leading and is_hosts(place[1])
            found = found or not skipped
        elif not line.startswith("    "):
            leading, skipped = line == _HEAD, False
        if not skipped:
            shown.append(line)
    return "\n".join(shown) if found else trace.rstrip()


def is_hosts(filename: str) -> bool:
    """Tell whether a file is the host's, or of what it calls plugins through."""
    own = Path(__file__).parent
    parts = Path(filename).parts
    library = "pluggy" in parts or "importlib" in parts or filename.startswith("<")
    return library or Path(filename).is_relative_to(own) or parts[-3:-1] == ("concurrent", "futures")
