"""Questions about the environment that only package management needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from plughost import Environment

HOST: Final = "plughost"
PREFIX: Final = f"{HOST}-"
"""The conventional prefix of the names of plugins' distributions."""


def unused_without(environment: Environment, keys: Collection[str]) -> list[str]:
    """Return distributions that were installed only as requirements of some others, and that nothing else requires.

    Args:
        environment: What is installed.
        keys: Normalised names of the distributions to be removed.
    """
    removed = set(keys)
    candidates = sorted(environment.closure(keys) - removed - environment.shared)
    has_grown = True
    while has_grown:
        unused = [
            key
            for key in candidates
            if key not in removed
            and not environment.installed[key].is_requested
            and not environment.dependents({key}).keys() - removed
        ]
        removed.update(unused)
        has_grown = bool(unused)
    return sorted(removed - set(keys))
