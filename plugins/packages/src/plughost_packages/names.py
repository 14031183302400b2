"""Names of plugins and of their distributions."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from plughost import CommandError

if TYPE_CHECKING:
    from plughost import Environment

HOST: Final = "plughost"
PREFIX: Final = f"{HOST}-"
"""The conventional prefix of the names of plugins' distributions."""

# Suffixes by which pip recognises a file.
_ARCHIVES: Final = (
    *(".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz"),
    *(".tar.xz", ".txz", ".tar.lz", ".tlz", ".tar.lzma"),
)


def to_requirement(given: str, plugins: Mapping[str, str]) -> str:
    """Return the requirement for pip.

    A path, a URL and a name that begins with `plughost` stay unchanged. The name of an installed plugin means its
    distribution. Any other name gets the prefix: `messages==1.2` means `plughost-messages==1.2`, never whatever
    an index calls `messages`.

    Raises:
        CommandError: It is not a valid requirement.
    """
    if is_place(given):
        return given
    try:
        requirement = Requirement(given)
    except InvalidRequirement as error:
        raise CommandError(f"{given!r} is neither a plugin's name nor a requirement: {error}") from None
    name = canonicalize_name(requirement.name)
    if requirement.url is not None or name == HOST or name.startswith(PREFIX):
        return given
    requirement.name = plugins.get(name, f"{PREFIX}{name}")
    return str(requirement)


def refuse_options(given: str) -> None:
    """Refuse a name that pip could parse as an option, or that contains options."""
    if re.search(r"(^|\s)-", given):
        raise CommandError(f"{given!r} is not a name: it begins with a hyphen, or contains options.")


def is_place(given: str) -> bool:
    """Return whether a name is a path or a URL."""
    head = given.split(" @ ", maxsplit=1)[0]
    return ":" in head or os.sep in head or "/" in head or head.startswith(".") or head.lower().endswith(_ARCHIVES)


def place_of(requirement: str) -> str:
    """Return the URL or path of a requirement such as `name @ URL`. Return other requirements unchanged.

    Raises:
        CommandError: It is not a valid URL.
    """
    place = re.sub(r"^[^/:]*@\s*", "", requirement)
    try:
        urlsplit(place)
    except ValueError as error:
        raise CommandError(f"{place!r} is no URL: {error}.") from None
    return place


def is_source(requirement: str) -> bool:
    """Return whether pip may have to build a requirement: its path or URL is not a wheel."""
    place = place_of(requirement)
    return is_place(place) and not urlsplit(place).path.partition("[")[0].endswith(".whl")


def to_distributions(given: Collection[str], environment: Environment) -> list[str]:
    """Return the normalised names of installed distributions, each once, given by a plugin's or their own name.

    Raises:
        CommandError: One is not installed, or several distributions bring the plugin; the message suggests names.
    """
    return list(dict.fromkeys(_to_distribution(name, environment) for name in given))


def _to_distribution(name: str, environment: Environment) -> str:
    plugins = environment.owners
    key = canonicalize_name(name)
    distributions = sorted(each for each in environment.installed if key in environment.plugins_of(each))
    if len(distributions) > 1:
        names = ", ".join(distributions)
        raise CommandError(f"Several distributions bring the plugin {key}; name one of them: {names}.")
    for candidate in (plugins.get(key), key, f"{PREFIX}{key}"):
        if candidate in environment.installed:
            return candidate
    ours = sorted({*plugins, *(each for each in environment.installed if each.startswith(PREFIX))})
    close = difflib.get_close_matches(name, ours, n=1, cutoff=0.6)
    named = [each for each in ours if each not in plugins.values()]  # not both a plugin and its distribution
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(named) or 'none'}."
    raise CommandError(f"{name} is not installed; {hint}")
