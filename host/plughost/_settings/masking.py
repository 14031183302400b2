"""Masking of secrets in settings that are shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

MASK: Final = "**********"
"""What pydantic shows in place of a secret."""


def mask_password(url: str) -> str:
    """Return a URL with the password, in the authority or among the parameters, replaced by stars."""
    parts = urlsplit(url)
    netloc = re.sub(":.*@", ":***@", parts.netloc)
    query = re.sub("(^|&)((?:ssl)?password)=[^&]*", r"\1\2=***", parts.query, flags=re.IGNORECASE)
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))
