"""Streamed bodies on their way to a server: whatever wraps one leaves it what Falcon and PEP 3333 say that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from wsgiref.util import FileWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BLOCK: Final = 64 * 1024
"""Bytes of a file that are sent at a time."""


def blocks(file: Any, suggested_size: int = BLOCK) -> FileWrapper:
    """Return the large blocks of a file: the `wsgi.file_wrapper` of PEP 3333. Falcon suggests a small size."""
    return FileWrapper(file, BLOCK)


class Bounded:
    """A stream of which as much is sent as its Content-Length says: what is longer is cut, what is shorter fails.

    PEP 3333 has it so, and HTTP/2 resets a stream that is longer.
    """

    def __init__(self, stream: Any, length: int) -> None:
        self._stream = stream
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        """Yield its parts, the last one cut; `EOFError` where they are too few."""
        left = self._length
        for part in parts_of(self._stream):
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return
        if left:
            message = f"the stream ended {left} bytes before its Content-Length, {self._length}"
            raise EOFError(message)

    def close(self) -> None:
        """Close the stream."""
        close_stream(self._stream)


class Watched:
    """A stream that reports when it is closed, and otherwise behaves as the one it wraps."""

    def __init__(self, stream: Any, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed: Callable[[], None] | None = closed
        read = getattr(stream, "read", None)
        if read is not None:
            self.read = read

    def __iter__(self) -> Iterator[bytes]:
        """Iterate as the stream does."""
        return iter(self._stream)

    def close(self) -> None:
        """Close the stream, the first time that this is called."""
        closed, self._closed = self._closed, None
        if closed is not None:
            try:
                close_stream(self._stream)
            finally:
                closed()


def parts_of(stream: Any) -> Iterable[bytes]:
    """Return the parts of a stream, as Falcon takes it: blocks of a file, or what it yields itself."""
    return blocks(stream) if getattr(stream, "read", None) else stream


def close_stream(stream: object) -> None:
    """Close a stream, if it can be closed."""
    close = getattr(stream, "close", None)
    if close is not None:
        close()
