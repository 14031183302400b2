"""What may stand in the head of a response: its status, and the names and values of its fields (RFC 9110, 5 and 15)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_FINAL: Final = 200  # what is below goes before a final status (RFC 9110, 15.2)
_MOST_KNOWN: Final = 512
_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_value: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
_known: Final[set[str]] = set()


@lru_cache(maxsize=256)
def status_code(status: str) -> int:
    """Return the number of a status such as `200 OK`.

    Raises:
        ValueError: It doesn't begin with three digits, has a line break, or is none to end with, such as 100.
    """
    if not (isinstance(status, str) and status[:3].isdigit()) or "\n" in status or "\r" in status:
        raise ValueError(f"a status must begin with three digits, and is one line: {status!r}")
    code = int(status[:3])
    if code < _FINAL:
        raise ValueError(f"a response ends with a status from {_FINAL} on: {status!r}")
    return code


@lru_cache(maxsize=_MOST_KNOWN)
def check_name(name: str) -> None:
    """Refuse what is no name of a header.

    Raises:
        ValueError: It is none.
    """
    if _token(name) is None:
        raise ValueError(f"{name!r} is no name of a header")


def is_fit(name: str, value: str) -> bool:
    """Tell whether a header can be sent."""
    if name in _known and value.isascii() and value.isprintable():
        return True
    if _token(name) is None:
        return False
    if len(_known) < _MOST_KNOWN:
        _known.add(name)
    return _value(value) is not None
