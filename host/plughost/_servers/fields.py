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


def raw_field(field: tuple[str, str]) -> tuple[bytes, bytes]:
    """Return a field as HTTP/2 writes it.

    Raises:
        AssertionError: It is a hop-by-hop field, which is the server's.
        ValueError: It is no field, or would begin another line.
    """
    known = _KNOWN.get(field)
    if known is not None:
        return known
    name, value = field
    if "\n" in value or "\r" in value:
        raise line_break(name)
    raw = raw_name(name), value.encode("latin-1")
    if name in _FEW and len(_KNOWN) < _MOST_KNOWN:
        _KNOWN[field] = raw
    return raw


_KNOWN: Final[dict[tuple[str, str], tuple[bytes, bytes]]] = {}
"""Fields as HTTP/2 writes them, of names whose values are few."""
_FEW: Final = frozenset({"api-version", "content-type", "vary", "x-content-type-options"})
_MOST_KNOWN: Final = 256


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
