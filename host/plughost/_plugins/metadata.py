"""Installed distributions, with their metadata read once and only up to the end of its header."""

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

# What importlib.metadata raises on malformed or unreadable files.
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, LookupError, OSError, csv.Error)


def find_distributions(
    distributions: Iterable[Distribution] | None = None, *, leftover: bool = False
) -> Iterator[InstalledDistribution]:
    """Yield the installed distributions, by default those on `sys.path`.

    Folders with a `~` are not among them: pip moves them aside, and they stay if it is killed. `leftover` yields these.
    """
    found = map(InstalledDistribution, installation.distributions() if distributions is None else distributions)
    return (each for each in found if each.folder.startswith("~") is leftover)


class InstalledDistribution(Distribution):
    """A distribution, read once. Malformed files raise nothing.

    `importlib.metadata` parses the whole file at each access, with the long description. That took most of the time of
    discovery, and so of each command and each reload.
    """

    def __init__(self, found: Distribution) -> None:
        self._found = found
        self._damage: list[str] = []

    @property
    def damage(self) -> str | None:
        """Which of its metadata can't be read, and why. None if everything needed can be read."""
        _ = self.metadata, self.entry_points
        return "; ".join(self._damage) or None

    @cached_property
    def metadata(self) -> Any:
        """The fields, without a description in the body.

        If the file has no name, name and version are those of the folder's name, as for pip.
        """
        try:
            text = self._found.read_text("METADATA")
            message = self._found.metadata if text is None else _parse_header(text.partition("\n\n")[0])
            if message.get_all("Name"):
                return message
            self._damage.append("METADATA is missing or names no distribution")
        except _UNREADABLE as error:
            self._damage.append(f"METADATA can't be read: {error}")
        name, _, version = self.folder.removesuffix(".dist-info").partition("-")
        return _parse_header(f"Name: {name}\nVersion: {version}" if name and version else "")

    @cached_property
    def version(self) -> str:
        """Its version, or `unknown` if its metadata has none."""
        return next(iter(self.metadata.get_all("Version") or ()), "unknown")

    @cached_property
    def entry_points(self) -> EntryPoints:
        """Its entry points. Empty if they can't be read."""
        try:
            found = self._found.entry_points
            problem = None if found else self._open_problem("entry_points.txt")
        except _UNREADABLE:
            found, problem = EntryPoints(()), self._bad_line()
        if problem is not None:
            self._damage.append(f"entry_points.txt can't be read: {problem}")
        return found

    @property
    def files(self) -> list[PackagePath] | None:
        """Its files. None if its RECORD can't be read."""
        try:
            return self._found.files
        except _UNREADABLE:
            return None

    def read_text(self, filename: str) -> str | None:
        """Return the text of a metadata file, or None if it is missing or can't be read."""
        try:
            return self._found.read_text(filename)
        except _UNREADABLE:
            return None

    @cached_property
    def direct_url(self) -> Mapping[str, Any] | None:
        """Its origin, from `direct_url.json` (PEP 610). None if it came from an index."""
        text = self.read_text("direct_url.json")
        if not text:
            return None
        try:
            content = json.loads(text)
        except ValueError:
            return {}  # not from an index, but the origin is lost
        infos = ("archive_info", "dir_info", "vcs_info")
        fields = content.items() if isinstance(content, dict) else ()
        return {key: value for key, value in fields if isinstance(value, dict if key in infos else str)}

    @property
    def is_editable(self) -> bool:
        """Whether it is an editable install, from a folder with its sources."""
        return bool((self.direct_url or {}).get("dir_info", {}).get("editable"))

    @property
    def is_requested(self) -> bool:
        """Whether a user asked for it by name, not another distribution (PEP 376, REQUESTED)."""
        return self.read_text("REQUESTED") is not None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return the path of a file of the distribution."""
        return self._found.locate_file(path)

    @property
    def folder(self) -> str:
        """The name of its metadata folder. Empty if it has none on disk."""
        # No public attribute has it; pip uses this one, too. In a ZIP file, it is no path on the disk.
        return PurePath(str(getattr(self._found, "_path", ""))).name

    def _open_problem(self, filename: str) -> str | None:
        """Return why a metadata file can't be opened. None if it can, or is missing; `read_text` doesn't tell."""
        path: Any = getattr(self._found, "_path", None)  # see `folder`
        try:
            if path is not None:
                path.joinpath(filename).open("rb").close()
        except (FileNotFoundError, NotADirectoryError, LookupError):
            pass
        except OSError as error:
            return error.strerror
        return None

    def _bad_line(self) -> str:
        """Return why entry_points.txt can't be parsed: its first invalid line."""
        lines = map(str.strip, (self.read_text("entry_points.txt") or "").splitlines())
        invalid = next((line for line in lines if line and line[0] not in "[#;" and "=" not in line), None)
        return "it is no text" if invalid is None else f"the line {invalid!r} has no ="


def record_of(distribution: Distribution) -> list[list[str]]:
    """Return the rows of a distribution's RECORD: path, hash and size, if recorded. Empty if it can't be read.

    The paths are relative, with slashes. `Distribution.files` takes ten times as long.
    """
    try:
        return [row for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()) if row]
    except csv.Error:
        return []


@lru_cache(maxsize=1024)  # each reload, and each host of a test, parses the same ones again
def _parse_header(text: str) -> Message:
    return email.message_from_string(text)
