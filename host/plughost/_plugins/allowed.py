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
    """Parse an item of the setting `allowed`. A ValueError says that it is not just a name and a range of versions."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"{text!r} is no distribution with a range of versions: {error}") from None
    if requirement.url or requirement.extras or requirement.marker:
        raise ValueError(f"{text!r} is more than a distribution with a range of versions")
    return requirement


def why_not_allowed(allowed: Collection[str] | None, distribution: str, version: str) -> str | None:
    """Return why a distribution may not provide plugins, or None. Without the setting, all may."""
    if allowed is None:
        return None
    key = canonicalize_name(distribution)
    matching = [each for each in map(parse_allowed, allowed) if canonicalize_name(each.name) == key]
    if not matching:
        return f"{distribution} {version} is not allowed: the setting allowed does not name it"
    if any(is_satisfied(each, version) for each in matching):
        return None
    return f"{distribution} {version} is not allowed: the setting allowed has {', '.join(map(str, matching))}"


def mark_disallowed(plugins: Iterable[InstalledPlugin], allowed: Collection[str] | None) -> tuple[InstalledPlugin, ...]:
    """Return the plugins. Those that are not allowed get a problem, so that they are never imported."""
    return tuple(
        each if each.problem else replace(each, problem=why_not_allowed(allowed, each.distribution, each.version))
        for each in plugins
    )


def is_satisfied(requirement: Requirement, version: str) -> bool:
    """Return whether a version is in the range of a requirement. A pre-release may be, since it is installed."""
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return not requirement.specifier
