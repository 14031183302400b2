"""Control characters: a terminal obeys them, so text of others is shown with them escaped."""

from __future__ import annotations

import re
from typing import Final

CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All but tabs and line breaks."""


def escape_controls(text: str, controls: re.Pattern[str] = CONTROLS) -> str:
    r"""Return a text with its control characters escaped, such as `\x1b`."""
    return controls.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
