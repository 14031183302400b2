"""Headers and small bodies of the last requests, so that a request can be sent again."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plughost_dev_console.recording import MASKED

if TYPE_CHECKING:
    import falcon

    from plughost.http import Request

LARGEST_BODY: Final = 16 * 1024
_SECRET: Final = re.compile(r"authori[sz]ation|cookie|token|secret|passw|api-?key|signature|session", re.IGNORECASE)
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


class Exchange(NamedTuple):
    """The headers of a request and its response, and its body: None if it was too large or not read to its end."""

    headers: dict[str, str]
    answered: dict[str, str]
    body: bytes | None

    @property
    def trace(self) -> str:
        """The trace id that the client sent (W3C Trace Context), or an empty string."""
        found = _TRACE.fullmatch(self.headers.get("TRACEPARENT", ""))
        return found[1] if found else ""

    def shown(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers of request and response, with possible secrets masked."""
        return (
            {name.title(): _masked(name, value) for name, value in sorted(self.headers.items())},
            {name.title(): _masked(name, value) for name, value in sorted(self.answered.items())},
        )


class Exchanges:
    """Middleware of every site that records headers and bodies, in development only."""

    def __init__(self, ring: deque[tuple[Any, ...]], own: str) -> None:
        """Take the ring buffer, and the plugin whose requests are left out."""
        self._ring = ring
        self._own = own

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Copy a small body while it is read."""
        if 0 < (req.content_length or 0) <= LARGEST_BODY:
            req.stream = req.env["wsgi.input"] = _CopyingStream(req.stream)

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Record the headers and the copied body."""
        if req.mounted is not None and req.mounted.plugin == self._own:
            return
        length, copied = req.content_length or 0, getattr(req.stream, "copied", b"")
        body = bytes(copied) if len(copied) == length else None
        self._ring.append((req.arrived, dict(req.headers), dict(resp.headers), body))

    def of(self, arrived: float) -> Exchange | None:
        """Return the exchange of the request that arrived at a time of `time.perf_counter()`."""
        found = next((each for each in tuple(self._ring) if each[0] == arrived), None)
        return None if found is None else Exchange(*found[1:])


class _CopyingStream:
    """A stream that copies everything read from it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.copied = bytearray()

    def read(self, *args: Any) -> bytes:
        part: bytes = self._stream.read(*args)
        self.copied += part
        return part

    def readline(self, *args: Any) -> bytes:
        part: bytes = self._stream.readline(*args)
        self.copied += part
        return part

    def __iter__(self) -> _CopyingStream:
        return self

    def __next__(self) -> bytes:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _masked(name: str, value: str) -> str:
    if not _SECRET.search(name):
        return value
    scheme, space, _ = value.partition(" ")
    return f"{scheme} {MASKED}" if space and name.upper() == "AUTHORIZATION" else MASKED
