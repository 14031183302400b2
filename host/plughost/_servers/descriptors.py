"""How many connections the system lets this process have: each takes a file descriptor.

A listener that can't accept for want of one spins, and everything else that opens a file fails. So listeners take no
more connections than leave some descriptors for stores, logs and whatever else is opened.
"""

from __future__ import annotations

import sys
from typing import Final

RESERVED: Final = 64
"""Descriptors that connections leave."""

_LEAST: Final = 8  # connections of a listener, however few descriptors there are


def raise_limit() -> int:
    """Let this process open as many files as the system allows it to; return how many that are."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource  # noqa: PLC0415 - Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS takes no unlimited one
            hard = soft
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def connections_each(wanted: int, listeners: int, allowed: int) -> int:
    """Return how many connections each of some listeners may take.

    Args:
        wanted: As the settings say.
        listeners: How many listeners share the descriptors.
        allowed: How many files the process may open.
    """
    reserved = min(RESERVED, allowed // 2)
    return max(_LEAST, min(wanted, (allowed - reserved) // max(1, listeners)))
