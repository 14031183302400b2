"""Header fields of responses, as an application may set them (PEP 3333, RFC 9110 5)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch


@lru_cache(maxsize=512)
def title_name(name: str) -> str:
    """Return a field's name as HTTP/1.1 writes it by custom: `content-type` as `Content-Type`.

    Raises:
        AssertionError: It is a hop-by-hop field, which is the server's.
        ValueError: It is no field name.
    """
    _check_name(name)
    return "-".join(part.capitalize() for part in name.split("-"))


@lru_cache(maxsize=512)
def raw_name(name: str) -> bytes:
    """Return a field's name as HTTP/2 writes it, in lower case.

    Raises:
        AssertionError: It is a hop-by-hop field, which is the server's.
        ValueError: It is no field name.
    """
    _check_name(name)
    return name.lower().encode()


def line_break(name: str) -> ValueError:
    """Return the error for a field whose value would begin another line."""
    return ValueError(f"the header {name} contains a line break")


def check_status(status: str) -> None:
    """Refuse a status that is none, such as `200` without its phrase's space or one of several lines.

    Raises:
        ValueError: It doesn't begin with three digits, or has a line break.
    """
    if not (isinstance(status, str) and status[:3].isdigit()) or "\n" in status or "\r" in status:
        raise ValueError(f"a status must begin with three digits, and is one line: {status!r}")


def _check_name(name: str) -> None:
    if _token(name) is None:
        raise ValueError(f"{name!r} is no name of a header")
    if name.lower() in _HOP_BY_HOP:
        raise AssertionError(f"{name} is a hop-by-hop header, which an application must not set (PEP 3333)")
