"""What is installed: distributions whose metadata is read once, and no further than its header."""

from __future__ import annotations

import csv
import email
import json
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from functools import cached_property, lru_cache
from importlib import metadata as installation
from importlib.metadata import Distribution, EntryPoints
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import os
    from importlib.metadata import PackagePath

DEBRIS: Final = "~"
"""What the name of a folder begins with that pip has moved aside; it stays where pip is killed, and pip ignores it."""

# What importlib.metadata raises on files that no installer would write, and on those that can't be read.
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, OSError, csv.Error)


def installed(distributions: Iterable[Distribution] | None) -> Iterator[InstalledDistribution]:
    """Yield what is installed, of these or of `sys.path`, and leave out the debris of an installer that was killed."""
    found = map(InstalledDistribution, installation.distributions() if distributions is None else distributions)
    return (each for each in found if not each.folder.startswith(DEBRIS))


def debris() -> Iterator[InstalledDistribution]:
    """Yield what an installer that was killed has left of distributions, on `sys.path`."""
    return (each for each in map(InstalledDistribution, installation.distributions()) if each.folder.startswith(DEBRIS))


class InstalledDistribution(Distribution):
    """A distribution, read once. Whatever its files hold, reading it raises nothing.

    `importlib.metadata` reads and parses the whole file for each question, the project's long description included:
    that was most of the time of a survey, and so of every command and every reload.
    """

    def __init__(self, found: Distribution) -> None:
        self._found = found
        self._damage: list[str] = []

    @property
    def damage(self) -> str | None:
        """Which of its metadata can't be read, and why. None where all that counts can be."""
        _ = self.metadata, self.entry_points
        return "; ".join(self._damage) or None

    @cached_property
    def metadata(self) -> Any:
        """The fields. The description is left out where it is the body.

        Where the file lacks name and version, the folder's name has them, as for pip.
        """
        try:
            text = self._found.read_text("METADATA")
            message = self._found.metadata if text is None else _header(text.partition("\n\n")[0])
            if message.get_all("Name"):
                return message
            self._damage.append("METADATA is missing or names no distribution")
        except _UNREADABLE as error:
            self._damage.append(f"METADATA can't be read: {error}")
        name, _, version = self.folder.removesuffix(".dist-info").partition("-")
        return _header(f"Name: {name}\nVersion: {version}" if name and version else "")

    @cached_property
    def entry_points(self) -> EntryPoints:
        """What it offers. Nothing where that can't be read."""
        try:
            return self._found.entry_points
        except _UNREADABLE:
            self._damage.append(f"entry_points.txt can't be read: {self._bad_line()}")
            return EntryPoints(())

    @property
    def files(self) -> list[PackagePath] | None:
        """Its files. None where its RECORD can't be read."""
        try:
            return self._found.files
        except _UNREADABLE:
            return None

    def read_text(self, filename: str) -> str | None:
        """Return a metadata file's content, or None where there is none that can be read."""
        try:
            return self._found.read_text(filename)
        except _UNREADABLE:
            return None

    @property
    def direct_url(self) -> Mapping[str, Any] | None:
        """What `direct_url.json` says of its origin (PEP 610). None where it came from an index."""
        text = self.read_text("direct_url.json")
        if not text:
            return None
        try:
            content = json.loads(text)
        except ValueError:
            return {}  # it came from somewhere, and nobody can say any more from where
        infos = ("archive_info", "dir_info", "vcs_info")
        fields = content.items() if isinstance(content, dict) else ()
        return {key: value for key, value in fields if isinstance(value, dict if key in infos else str)}

    @property
    def is_editable(self) -> bool:
        """Whether it is installed in place, from a folder with its sources."""
        return bool((self.direct_url or {}).get("dir_info", {}).get("editable"))

    @property
    def is_requested(self) -> bool:
        """Whether somebody asked for it by name, not another distribution (PEP 376, REQUESTED)."""
        return self.read_text("REQUESTED") is not None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return where a file of the distribution is."""
        return self._found.locate_file(path)

    @property
    def folder(self) -> str:
        """The name of the folder with its metadata. Empty where it is on no disk."""
        return PurePath(getattr(self._found, "_path", "")).name  # there is no public way to it; pip takes the same one

    def _bad_line(self) -> str:
        """Return the first line of entry_points.txt that is none, as far as it can be read."""
        lines = map(str.strip, (self.read_text("entry_points.txt") or "").splitlines())
        bad = next((line for line in lines if line and line[0] not in "[#;" and "=" not in line), None)
        return "it is no text" if bad is None else f"the line {bad!r} has no ="


def version_of(distribution: Distribution) -> str:
    """Return a distribution's version. `unknown` where its metadata has none."""
    # Not distribution.version: for missing keys that warns on Python 3.12 and later.
    return next(iter(distribution.metadata.get_all("Version") or ()), "unknown")


def record_of(distribution: Distribution) -> list[list[str]]:
    """Return the rows of a distribution's RECORD: path, hash and size, if told. Empty where none can be read.

    The paths are relative, with slashes. `Distribution.files` takes ten times as long.
    """
    try:
        return [row for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()) if row]
    except csv.Error:
        return []


@lru_cache(maxsize=1024)  # each reload, and each host of a test, looks at the same ones again
def _header(text: str) -> Message:
    return email.message_from_string(text)
