"""Masking of secrets in settings that are shown."""

from __future__ import annotations

import re
from typing import Any, Final

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


def mask_urls(value: Any) -> Any:
    """Return a JSON value without the passwords of URLs that are in its texts."""
    if isinstance(value, str):
        return re.sub(r"(://[^:@/\s]*:)[^@\s]+@", rf"\1{MASK}@", value)
    if isinstance(value, dict):
        return {key: mask_urls(each) for key, each in value.items()}
    return [mask_urls(each) for each in value] if isinstance(value, list) else value
