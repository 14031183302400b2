"""Wrapped bodies, each of them a stream as Falcon and PEP 3333 define it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from wsgiref.util import FileWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_BLOCK_BYTES: Final = 64 * 1024


def file_blocks(file: Any, suggested_size: int = _BLOCK_BYTES) -> FileWrapper:
    """Return the large blocks of a file: the `wsgi.file_wrapper` of PEP 3333. Falcon would suggest small ones."""
    return FileWrapper(file, _BLOCK_BYTES)


class WrappedStream:
    """The parts that are made from a stream. To close them closes the stream and calls `on_close`, once."""

    def __init__(self, stream: Any, parts: Iterable[bytes], on_close: Callable[[], None] = lambda: None) -> None:
        self._stream = stream
        self._parts = parts
        self._on_close = on_close
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                close_stream(self._stream)
            finally:
                self._on_close()


def bounded_parts(stream: Any, length: int) -> Iterator[bytes]:
    """Yield as many bytes as the Content-Length says: HTTP/2 resets a longer stream. A shorter one fails."""
    left = length
    for part in stream_parts(stream):
        yield part[:left]
        left -= len(part)
        if left <= 0:
            return
    if left:
        message = f"the stream ended {left} bytes before its Content-Length, {length}"
        raise EOFError(message)


def stream_parts(stream: Any) -> Iterable[bytes]:
    """Return the parts of a stream as Falcon would send them: the blocks of a file, or what an iterable yields."""
    return file_blocks(stream) if getattr(stream, "read", None) else stream


def close_stream(stream: object) -> None:
    close = getattr(stream, "close", None)
    if close is not None:
        close()
