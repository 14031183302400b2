"""Wrappers of streamed bodies, each of them a stream as Falcon and PEP 3333 define it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from wsgiref.util import FileWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_BLOCK_BYTES: Final = 64 * 1024


def file_blocks(file: Any, suggested_size: int = _BLOCK_BYTES) -> FileWrapper:
    """Return the large blocks of a file: the `wsgi.file_wrapper` of PEP 3333. Falcon would suggest small ones."""
    return FileWrapper(file, _BLOCK_BYTES)


class BoundedStream:
    """A stream that yields as many bytes as its Content-Length says: a longer one is cut, a shorter one fails.

    PEP 3333 requires it, and HTTP/2 resets a stream that is longer.
    """

    def __init__(self, stream: Any, length: int) -> None:
        self._stream = stream
        self._length = length

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts, and cut the last one. Raise `EOFError` if they are too short."""
        left = self._length
        for part in stream_parts(self._stream):
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


class NotifyingStream:
    """A stream that calls `on_close` once it is closed, and otherwise behaves like the one that it wraps."""

    def __init__(self, stream: Any, on_close: Callable[[], None]) -> None:
        self._stream = stream
        self._on_close: Callable[[], None] | None = on_close
        read = getattr(stream, "read", None)
        if read is not None:
            self.read = read

    def __iter__(self) -> Iterator[bytes]:
        """Iterate as the stream does."""
        return iter(self._stream)

    def close(self) -> None:
        """Close the stream. Further calls do nothing."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            try:
                close_stream(self._stream)
            finally:
                on_close()


def stream_parts(stream: Any) -> Iterable[bytes]:
    """Return the parts of a stream as Falcon would send them: the blocks of a file, or what an iterable yields."""
    return file_blocks(stream) if getattr(stream, "read", None) else stream


def close_stream(stream: object) -> None:
    """Close a stream, if it can be closed."""
    close = getattr(stream, "close", None)
    if close is not None:
        close()
