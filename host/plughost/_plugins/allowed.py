"""The setting `allowed`: which distributions may provide plugins."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

if TYPE_CHECKING:
    from plughost._plugins.discovery import InstalledPlugin


def parse_allowed(text: str) -> Requirement:
    """Parse an item of the setting `allowed`.

    Raises:
        ValueError: It is not just a name and a range of versions.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        message = f"{text!r} is no distribution with a range of versions: {error}"
        raise ValueError(message) from None
    if requirement.url or requirement.extras or requirement.marker:
        message = f"{text!r} is more than a distribution with a range of versions"
        raise ValueError(message)
    return requirement


def why_not_allowed(allowed: Collection[str] | None, distribution: str, version: str) -> str | None:
    """Return why a distribution may not provide plugins, or None. Without the setting, all may."""
    if allowed is None:
        return None
    key = canonicalize_name(distribution)
    matching = [each for each in map(parse_allowed, allowed) if canonicalize_name(each.name) == key]
    if not matching:
        return f"{distribution} {version} is not allowed: the setting allowed does not name it"
    try:
        if any(each.specifier.contains(version, prereleases=True) for each in matching):
            return None
    except InvalidVersion:
        pass
    return f"{distribution} {version} is not allowed: the setting allowed has {', '.join(map(str, matching))}"


def mark_disallowed(plugins: Iterable[InstalledPlugin], allowed: Collection[str] | None) -> tuple[InstalledPlugin, ...]:
    """Return the plugins. Those that are not allowed get a problem, so that they are never imported."""
    return tuple(
        each if each.problem else replace(each, problem=why_not_allowed(allowed, each.distribution, each.version))
        for each in plugins
    )
