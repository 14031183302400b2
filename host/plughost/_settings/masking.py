"""Masking of secrets in settings that are shown."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "**********"
"""What pydantic shows in place of a secret."""


def mask_password(url: str) -> str:
    """Return a URL with the password, in the authority or among the parameters, replaced by stars.

    A password may contain unescaped characters that end the authority, so it ends at the last `@` of all. Of a text
    that is no URL, nothing is shown.
    """
    if not re.match(r"[\w+.-]+://", url):
        return MASK
    scheme, _, rest = url.partition("://")
    rest = re.sub(":.*@", ":***@", rest, flags=re.DOTALL)
    return f"{scheme}://" + re.sub("([?&][^=&]*(?:pas|pw)[^=&]*)=[^&]*", r"\1=***", rest, flags=re.IGNORECASE)
