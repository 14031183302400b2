"""Shorten tracebacks to the frames that matter to a plugin's author."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import Final

import plughost

_FRAME: Final = re.compile(r'  File "([^"]*)", line [0-9]+')
_HEAD: Final = "Traceback (most recent call last):"
_OWN: Final = Path(plughost.__file__).parent
_STANDARD: Final = Path(sysconfig.get_path("stdlib"))
_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})
_CALLERS: Final = frozenset({"falcon", "pluggy", "waitress"})


def own_frames(trace: str) -> str:
    """Return a traceback without the frames of the host that lead to a plugin's first one.

    It is empty if no frame, or every frame, would be left out.
    """
    shown: list[str] = []
    leading = leaves_out = False
    left = kept = 0
    for line in trace.splitlines():
        frame = _FRAME.match(line)
        if line == _HEAD:
            leading, leaves_out = True, False
        elif frame:
            leading = leaves_out = leading and _is_calling(frame[1])
            left, kept = left + leaves_out, kept + (not leaves_out)
        elif not line.startswith("    "):
            leaves_out = False
        if not leaves_out:
            shown.append(line)
    return "\n".join(shown) if left and kept else ""


def _is_calling(file: str) -> bool:
    """Return whether a file belongs to the host, or to a library through which it calls plugins."""
    path = Path(file)
    packages = [each for each in path.parents if each.parent.name in _PACKAGES]
    if packages:
        return packages[-1].name in _CALLERS or path.is_relative_to(_OWN)
    return file.startswith("<") or path.is_relative_to(_OWN) or path.is_relative_to(_STANDARD)
