"""Checks of a response's status and header fields (RFC 9110, 5 and 15)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

CLIENT_CACHE_SIZE: Final = 64
"""Entries of a cache whose keys are header fields: few, since hostile clients can send many of 64 KiB."""

_FIRST_FINAL: Final = 200  # the first code that isn't interim (RFC 9110, 15.2)
_CACHE_SIZE: Final = 512
_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_value: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
_valid_names: Final[set[str]] = set()


@lru_cache(maxsize=256)
def status_code(status: str) -> int:
    """Return the code of a status such as `200 OK`. Raise `ValueError` if it is malformed, or interim such as 100."""
    if not (isinstance(status, str) and status[:3].isdigit()) or "\n" in status or "\r" in status:
        raise ValueError(f"a status must begin with three digits, and is one line: {status!r}")
    code = int(status[:3])
    if code < _FIRST_FINAL:
        raise ValueError(f"a response ends with a status from {_FIRST_FINAL} on: {status!r}")
    return code


@lru_cache(maxsize=_CACHE_SIZE)
def check_name(name: str) -> None:
    """Raise `ValueError` if the name of a header is invalid."""
    if _token(name) is None:
        raise ValueError(f"{name!r} is no name of a header")


def is_valid_header(name: str, value: str) -> bool:
    if name in _valid_names and value.isascii() and value.isprintable():
        return True
    if _token(name) is None:
        return False
    if len(_valid_names) < _CACHE_SIZE:
        _valid_names.add(name)
    return _value(value) is not None
