"""Creates over HTTP/2, each with a body of its own, which h2load can't: it sends the same body each time."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from hpack import Decoder, Encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
# No dynamic table, so that a status always looks the same; no push; windows that a short run doesn't fill.
_OURS: Final = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, 2**31 - 1)
_WIDE: Final = struct.pack(">I", 2**31 - 1 - 65535)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload) << 8 | kind) + struct.pack(">BI", flags, stream) + payload


@cache
def _status(field: bytes) -> str:
    ((_, value),) = Decoder().decode(field)
    return str(value)


def _first_field(block: bytes) -> bytes:
    """Return the first field of a header block, which is the status."""
    start = 0
    while block[start] & 0xE0 == 0x20:  # a new size of the dynamic table
        start += 1
    return block[start : start + 1] if block[start] & 0x80 else block[start : start + 2 + (block[start + 1] & 0x7F)]


class _Connection(asyncio.Protocol):
    """A connection with some streams in flight.

    Attributes:
        times: Seconds that each answered request took.
        failed: How many got another answer than 2xx, or none.
    """

    def __init__(self, headers: bytes, streams: int, next_body: Callable[[], bytes]) -> None:
        self.times: list[float] = []
        self.failed = 0
        self._headers, self._streams, self._next_body = headers, streams, next_body
        self._buffer = b""
        self._out: list[bytes] = []
        self._begun: dict[int, float] = {}
        self._next_stream = 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface and the first requests."""
        self._transport = cast("asyncio.Transport", transport)
        self._out = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", _frame(_SETTINGS, 0, 0, _OURS), _frame(_WINDOW, 0, 0, _WIDE)]
        for _ in range(self._streams):
            self._ask()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Take frames, and ask again for each answer."""
        buffer = self._buffer + data
        at = 0
        while len(buffer) - at >= 9:
            head, flags, stream = struct.unpack_from(">IBI", buffer, at)
            end = at + 9 + (head >> 8)
            if end > len(buffer):
                break
            self._take(head & 0xFF, flags, stream, buffer[at + 9 : end])
            at = end
        self._buffer = buffer[at:]
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        """Count what is left without an answer."""
        self.failed += len(self._begun)

    def close(self) -> None:
        """Close it; what is in flight is no failure then."""
        self._begun.clear()
        self._transport.abort()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _HEADERS and not _status(_first_field(payload)).startswith("2"):
            self.failed += 1
        if kind in {_HEADERS, _DATA} and flags & _END_STREAM:
            self.times.append(time.perf_counter() - self._begun.pop(stream))
            self._ask()
        elif kind in {_SETTINGS, _PING} and not flags & _ACK:
            self._out.append(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind in {_RESET, _GOAWAY}:
            self.failed += 1

    def _ask(self) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._out.append(_frame(_HEADERS, _END_HEADERS, stream, self._headers))
        self._out.append(_frame(_DATA, _END_STREAM, stream, self._next_body()))
        self._begun[stream] = time.perf_counter()

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out.clear()


def post(
    url: str, headers: Sequence[tuple[str, str]], next_body: Callable[[], bytes], shape: tuple[int, int], seconds: float
) -> tuple[list[float], int]:
    """Send requests for some seconds, and return how many seconds each took, and how many failed.

    Args:
        url: Where to.
        headers: Further headers.
        next_body: Makes the body of each request; all are equally long.
        shape: How many connections, and how many streams in flight on each.
        seconds: For how long.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    block = Encoder().encode(
        [
            (":method", "POST", True),
            (":scheme", "https", True),
            (":authority", parts.netloc, True),
            (":path", parts.path, True),
            *((name.lower(), value, True) for name, value in headers),
        ]
    )
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])

    async def run() -> list[_Connection]:
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(lambda: _Connection(block, shape[1], next_body), host, port, ssl=context)
            for _ in range(shape[0])
        ]
        await asyncio.sleep(seconds)
        for _, connection in made:
            connection.close()
        return [connection for _, connection in made]

    connections = asyncio.run(run())
    return [each for one in connections for each in one.times], sum(one.failed for one in connections)
