"""Chunked request bodies (RFC 9112 7.1), where each line ends with CR LF.

waitress's own receiver takes some bare LFs for the end of a line, and others for no end. Where two servers see lines
end in different places, one client's request may be taken for another's.
"""

from __future__ import annotations

import re
from typing import Any, Final

from waitress.rfc7230 import CHUNK_EXT, TOKEN
from waitress.utilities import BadRequest

_LINES_LIMIT: Final = 8192  # bytes of a chunk's line, or of all trailer fields
_TEXT: Final = r"[\t -~\x80-\xff]*"


def _line(whole: str, begun: str) -> re.Pattern[bytes]:
    """Return what matches a line to its end, or what there is of one at the end of the bytes."""
    return re.compile(rf"(?:{whole})(?P<end>\r\n)|(?:{begun})?\r?\Z".encode("latin-1"))


_SIZE: Final = _line(rf"(?P<size>[0-9A-Fa-f]{{1,16}}){CHUNK_EXT}", rf"[0-9A-Fa-f]{{1,16}}(?:;{_TEXT})?")
_DATA_END: Final = _line("", "")
_TRAILER: Final = _line(rf"(?P<field>{TOKEN}:{_TEXT})?", rf"{TOKEN}(?::{_TEXT})?")


class Chunks:
    """A body that comes in chunks, as waitress's parser wants it. Trailer fields are read and dropped."""

    completed = False
    error: BadRequest | None = None

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._left = 0  # bytes that are to come of a chunk
        self._expected = _SIZE
        self._begun = b""  # what there is of a line
        self._trailers = 0

    def __len__(self) -> int:
        """Return how much there is of the body."""
        return len(self._buffer)

    @property
    def announced(self) -> int:
        """How much of the body there is, and is to come in the present chunk."""
        return len(self._buffer) + self._left

    def received(self, data: bytes) -> int:
        """Take bytes from the connection, and return how many belonged to the body."""
        at, before = 0, len(self._begun)
        data, self._begun = self._begun + data, b""
        while at < len(data) and not self.completed:
            if self._left:
                part = data[at : at + self._left]
                self._buffer.append(part)
                self._left -= len(part)
                at += len(part)
                continue
            line = self._expected.match(data, at)
            if line is None or self._trailers + len(line[0]) > _LINES_LIMIT:
                self.error = BadRequest("")
                return len(data) - before
            at = line.end()
            if line["end"]:
                self._go_on(line)
            else:
                self._begun = line[0]
        return at - before

    def _go_on(self, line: re.Match[bytes]) -> None:
        """Expect what follows a line."""
        if self._expected is _SIZE:
            self._left = int(line["size"], 16)
            self._expected = _DATA_END if self._left else _TRAILER
        elif self._expected is _DATA_END:
            self._expected = _SIZE
        else:
            self._trailers += len(line[0])
            self.completed = line["field"] is None

    def getfile(self) -> Any:
        """Return a file with the body."""
        return self._buffer.getfile()

    def getbuf(self) -> Any:
        """Return where the body is kept."""
        return self._buffer
