"""Places: where to look for distributions, and where `install` was told to, for `lock` and `bundle`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost import CommandError
from plughost_packages.pip import configures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plughost_packages.settings import Settings

# Options of pip's that say where something is; the others say how to choose, and hold for one command.
_PLACES: Final = frozenset({"--index-url", "--extra-index-url", "--find-links", "--trusted-host"})


def places(given: Sequence[str], settings: Settings, folder: Path) -> list[str]:
    """Return where pip is to look: where options, the settings or pip's own configuration say, and nowhere else.

    Args:
        given: pip's options, of the command.
        settings: The plugin's settings.
        folder: What their relative paths start from.

    Raises:
        CommandError: A further index is named, and no first one.
    """
    where = list(given)
    for place in settings.find_links:
        where += ["--find-links", place if "://" in place else str(folder / place)]
    if "--index-url" not in where and "--no-index" not in where:
        if settings.index_url is not None:
            where += ["--index-url", settings.index_url.get_secret_value()]
        elif "--extra-index-url" in where:
            raise CommandError("Say with --index-url which index is the first: --extra-index-url adds to it.")
        elif not configures("index-url"):  # with a further one alone, PyPI would be the first
            where.append("--no-index")
    return where


def are_nowhere(places: Sequence[str]) -> bool:
    """Tell whether pip has neither an index nor a folder to look in."""
    return "--no-index" in places and "--find-links" not in places and not configures("find-links")


def remember(where: Sequence[str]) -> None:
    """Keep where an installation was told to look, behind what was kept before.

    The file may hold passwords of indexes, and only its owner reads it.

    Args:
        where: pip's options.
    """
    given = [(option, _absolute(value)) for option, value in pairwise(where) if option in _PLACES]
    if not given:
        return
    known = list(zip(*[iter(remembered())] * 2, strict=True))
    kept = [pair for pair in known if pair not in given] + given
    file = _file()
    with suppress(OSError):  # somebody else's environment is left as it is; the options can be given to `lock`, too
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump([word for pair in kept for word in pair], opened)


def remembered() -> list[str]:
    """Return where installations were told to look, as options of pip's; the latest index counts."""
    try:
        kept = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return kept if isinstance(kept, list) and all(isinstance(word, str) for word in kept) else []


def _file() -> Path:
    return Path(sys.prefix, ".plughost-places.json")


def _absolute(value: str) -> str:
    return str(Path(value).absolute()) if Path(value).exists() else value
