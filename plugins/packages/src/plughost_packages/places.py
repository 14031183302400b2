"""Places: the indexes and folders to search, and those of past installations, for `lock` and `bundle`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost import CommandError, write_private
from plughost_packages.pip import configures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plughost import PluginContext
    from plughost_packages.settings import Settings

# pip's options that name sources. Its other options choose among versions, and hold for one command only.
_PLACES: Final = frozenset({"--index-url", "--extra-index-url", "--find-links", "--trusted-host"})


def places(context: PluginContext[Settings], given: Sequence[str]) -> list[str]:
    """Return pip's options for the sources in the command's options, the settings or pip's own configuration only.

    Raises:
        CommandError: An extra index is named, but no main one.
    """
    where, settings = list(given), context.settings
    for place in settings.find_links:
        where += ["--find-links", place if "://" in place else str(context.host.settings_dir / place)]
    if "--index-url" not in where and "--no-index" not in where:
        if settings.index_url is not None:
            where += ["--index-url", settings.index_url.get_secret_value()]
        elif "--extra-index-url" in where:
            raise CommandError("Name the main index with --index-url: --extra-index-url only adds to it.")
        elif not configures("index-url"):  # with only an extra index configured, pip would search PyPI, too
            where.append("--no-index")
    return where


def are_nowhere(places: Sequence[str]) -> bool:
    """Return whether pip has neither an index nor a folder to search."""
    return "--no-index" in places and "--find-links" not in places and not configures("find-links")


def remember(where: Sequence[str]) -> None:
    """Save the sources of an installation after those of earlier ones. They may contain passwords of indexes."""
    given = [(option, _absolute(value)) for option, value in pairwise(where) if option in _PLACES]
    if not given:
        return
    known = list(zip(*[iter(remembered())] * 2, strict=True))
    pairs = [pair for pair in known if pair not in given] + given
    with suppress(OSError):  # another user's environment can't be written; `lock` takes the options, too
        write_private(_file(), json.dumps([word for pair in pairs for word in pair]).encode())


def remembered() -> list[str]:
    """Return the sources of past installations as pip's options, in which the latest index wins."""
    try:
        saved = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return saved if isinstance(saved, list) and all(isinstance(word, str) for word in saved) else []


def _file() -> Path:
    return Path(sys.prefix, ".plughost-places.json")


def _absolute(value: str) -> str:
    return str(Path(value).absolute()) if Path(value).exists() else value
