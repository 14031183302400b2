"""Tracebacks of plugins' code, without the host's frames."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

_HEADER: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'  File "([^"]*)", line [0-9]+')


def own_frames(trace: str) -> str:
    """Return a traceback from the plugin's first frame on, or all of it if it has no frame of a plugin."""
    shown: list[str] = []
    at_top = skipped = has_plugin_frame = False
    for line in trace.splitlines():
        frame = _FRAME.match(line)
        if frame:
            skipped = at_top = at_top and is_host_file(frame[1])
            has_plugin_frame = has_plugin_frame or not skipped
        elif not line.startswith("    "):
            at_top, skipped = line == _HEADER, False
        if not skipped:
            shown.append(line)
    return "\n".join(shown) if has_plugin_frame else trace.rstrip()


def is_host_file(filename: str) -> bool:
    """Return whether a file belongs to the host, or to a library through which it calls plugins."""
    own = Path(__file__).parent
    parts = Path(filename).parts
    library = "pluggy" in parts or "importlib" in parts or filename.startswith("<") or filename == contextlib.__file__
    return library or Path(filename).is_relative_to(own) or parts[-3:-1] == ("concurrent", "futures")
