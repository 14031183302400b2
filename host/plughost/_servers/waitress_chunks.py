"""Chunked request bodies (RFC 9112 7.1), whose lines end with CR LF only.

waitress's own receiver accepts some bare LFs as line ends, but not others. If two servers see lines end in different
places, one client's request may be mistaken for another's.
"""

from __future__ import annotations

import re
from typing import Any, Final

from waitress.rfc7230 import CHUNK_EXT, TOKEN
from waitress.utilities import BadRequest

_LINES_LIMIT: Final = 8192  # bytes of a chunk's line, or of all trailer fields
_TEXT: Final = r"[\t -~\x80-\xff]*"


def _line_pattern(complete: str, partial: str) -> re.Pattern[bytes]:
    """Return a pattern for a complete line, or for a partial one at the end of the data."""
    return re.compile(rf"(?:{complete})(?P<end>\r\n)|(?:{partial})?\r?\Z".encode("latin-1"))


_SIZE: Final = _line_pattern(rf"(?P<size>[0-9A-Fa-f]{{1,16}}){CHUNK_EXT}", rf"[0-9A-Fa-f]{{1,16}}(?:;{_TEXT})?")
_DATA_END: Final = _line_pattern("", "")
_TRAILER: Final = _line_pattern(rf"(?P<field>{TOKEN}:{_TEXT})?", rf"{TOKEN}(?::{_TEXT})?")


class StrictChunkedReceiver:
    """Receives a chunked body for waitress's parser. Trailer fields are discarded."""

    completed = False
    error: BadRequest | None = None

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._remaining = 0  # bytes of the current chunk
        self._expected = _SIZE
        self._partial_line = b""
        self._trailer_bytes = 0

    def __len__(self) -> int:
        """Return how many bytes of the body were received."""
        return len(self._buffer)

    @property
    def expected_size(self) -> int:
        """The size of the body up to the end of the current chunk."""
        return len(self._buffer) + self._remaining

    def received(self, data: bytes) -> int:
        """Take bytes from the connection, and return how many belonged to the body."""
        position, carried = 0, len(self._partial_line)
        data, self._partial_line = self._partial_line + data, b""
        while position < len(data) and not self.completed:
            if self._remaining:
                part = data[position : position + self._remaining]
                self._buffer.append(part)
                self._remaining -= len(part)
                position += len(part)
                continue
            line = self._expected.match(data, position)
            if line is None or self._trailer_bytes + len(line[0]) > _LINES_LIMIT:
                self.error = BadRequest("")
                return len(data) - carried
            position = line.end()
            if line["end"]:
                self._advance(line)
            else:
                self._partial_line = line[0]
        return position - carried

    def _advance(self, line: re.Match[bytes]) -> None:
        """Set what follows a line."""
        if self._expected is _SIZE:
            self._remaining = int(line["size"], 16)
            self._expected = _DATA_END if self._remaining else _TRAILER
        elif self._expected is _DATA_END:
            self._expected = _SIZE
        else:
            self._trailer_bytes += len(line[0])
            self.completed = line["field"] is None

    def getfile(self) -> Any:
        """Return a file with the body."""
        return self._buffer.getfile()

    def getbuf(self) -> Any:
        """Return the buffer of the body."""
        return self._buffer
