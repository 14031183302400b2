"""What is installed: distributions whose metadata is read once, and no further than its header."""

from __future__ import annotations

import email
from collections.abc import Iterable, Iterator
from email.message import Message
from functools import cached_property, lru_cache
from importlib import metadata as installation
from importlib.metadata import Distribution, EntryPoints
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os


def installed(distributions: Iterable[Distribution] | None = None) -> Iterator[Distribution]:
    """Yield what is installed.

    Args:
        distributions: What is; all that is on `sys.path` by default.
    """
    return map(_ReadOnce, installation.distributions() if distributions is None else distributions)


class _ReadOnce(Distribution):
    """A distribution, read once.

    `importlib.metadata` reads and parses the whole file for each question, the project's long description included:
    that was most of the time of a survey, and so of every command and every reload.
    """

    def __init__(self, found: Distribution) -> None:
        self._found = found

    @cached_property
    def metadata(self) -> Any:
        """The fields; the description is left out where it is the body."""
        text = self.read_text("METADATA")
        return self._found.metadata if text is None else _header(text.partition("\n\n")[0])

    @property
    def entry_points(self) -> EntryPoints:
        """What it offers."""
        return self._found.entry_points

    def read_text(self, filename: str) -> str | None:
        """Return a metadata file's content, or None where there is none."""
        return self._found.read_text(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return where a file of the distribution is."""
        return self._found.locate_file(path)


@lru_cache(maxsize=1024)  # each reload, and each host of a test, looks at the same ones again
def _header(text: str) -> Message:
    return email.message_from_string(text)
