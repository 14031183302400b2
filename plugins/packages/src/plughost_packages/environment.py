"""What operators ask of the environment beside what the host does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from plughost import Environment

HOST: Final = "plughost"
PREFIX: Final = f"{HOST}-"
"""What the distributions of plugins are called by convention, before the plugin's name."""


def unused_without(environment: Environment, keys: Collection[str]) -> list[str]:
    """Return what was installed only because some distributions required it, and nothing else does.

    Args:
        environment: What is installed.
        keys: Normalised names of the distributions that go.
    """
    gone = set(keys)
    candidates = sorted(environment.closure(keys) - gone - environment.shared)
    grown = True
    while grown:
        unused = [
            key
            for key in candidates
            if key not in gone
            and not environment.installed[key].is_requested
            and not environment.dependents({key}).keys() - gone
        ]
        gone.update(unused)
        grown = bool(unused)
    return sorted(gone - set(keys))
