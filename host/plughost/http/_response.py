"""Responses: their media type (RFC 9110, 12.5.1), status, header fields, and bodies, also streamed ones (PEP 3333)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from wsgiref.util import FileWrapper

import falcon

from plughost.http._json.codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Offers = tuple[str, ...]

CLIENT_CACHE_SIZE: Final = 64
"""Entries of a cache whose keys are header fields: few, since hostile clients can send many of 64 KiB."""

_FIRST_FINAL: Final = 200  # the first code that isn't interim (RFC 9110, 15.2)
_CACHE_SIZE: Final = 512
_BLOCK_BYTES: Final = 64 * 1024
_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_value: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
_other_parameter = re.compile(r";(?!\s*q\s*=)[^;,]*")
_range = re.compile(
    r"\s*(?P<type>\*(/\*)?|[^\s/;*]+/[^\s/;]+)\s*(;\s*q\s*=\s*(?P<weight>0(\.\d*)?|\.\d+|1(\.0*)?)\s*)?"
).fullmatch


class Response(falcon.Response):
    """Falcon's response, with additions for the host. Resources and middleware use it as Falcon's."""

    def add_common(self, fields: Mapping[str, str], request_id: str) -> None:
        """Set the header fields known since the site was built: one by one would take three times as long.

        Names are in lower case. `vary` is merged with the response's own.

        Raises:
            ValueError: A field that the response already has is invalid; it is dropped.
        """
        headers = self._headers
        invalid: tuple[str, ...] = ()
        for name, value in headers.items():
            if not is_valid_header(name, value):
                invalid += (name,)
        for name in invalid:
            del headers[name]
        vary = headers.get("vary")
        headers.update(fields)
        headers["x-request-id"] = request_id
        if vary is not None and "vary" in fields:
            headers["vary"] = _merge_lists(vary, fields["vary"])
        if invalid:
            raise ValueError(f"the names or values of these headers can't be sent: {invalid!r}")

    def check_body(self) -> None:
        """Render the body and check, as far as possible beforehand, that it is made of bytes."""
        if self._media is not None or self.text is not None:
            self.render_body()
        elif self._data is not None:
            check_part(self._data)
        elif type(self.stream) is list:
            for part in self.stream:
                check_part(part)

    def render_body(self) -> bytes | None:
        """Return the body. Media without a Content-Type is encoded as JSON directly, without a media handler."""
        headers = self._headers
        if self._media is not None and "content-type" not in headers and self.text is None and self._data is None:
            headers["content-type"] = falcon.MEDIA_JSON
            self._media_rendered = encode(self._media)
        try:
            body = super().render_body()
        except falcon.HTTPUnsupportedMediaType:  # Falcon would tell the client that its request is wrong
            kind = headers.get("content-type")
            raise TypeError(f"resp.media is JSON, and can't be sent as {kind}: use resp.text") from None
        if type(body) is not bytes and body is not None:
            check_part(body)
        return body

    def _wsgi_headers(self, media_type: str | None = None) -> list[tuple[str, str]]:
        """Return Falcon's headers, without the Content-Type that Falcon sets even for an empty body."""
        headers = self._headers
        if headers.get("content-length") == "0":
            headers.pop("content-type", None)
        elif media_type is not None and "content-type" not in headers:
            headers["content-type"] = media_type
        if self._extra_headers is None and self._cookies is None:
            return list(headers.items())
        return super()._wsgi_headers(None)


def check_part(part: object) -> None:
    """Raise `TypeError` if a body, or a part of one, isn't bytes (PEP 3333)."""
    if not isinstance(part, bytes):
        raise TypeError(f"a response's body is made of bytes (PEP 3333), not of {type(part).__name__}")


def _merge_lists(one: str, other: str) -> str:
    """Merge two comma-separated lists of names; each name stays once, whatever its case."""
    names: dict[str, str] = {}
    for name in f"{one},{other}".split(","):
        names.setdefault(name.strip().lower(), name.strip())
    return ", ".join(names.values())


@lru_cache(maxsize=256)
def status_code(status: str) -> int:
    """Return the code of a status such as `200 OK`. Raise `ValueError` if it is malformed, or interim such as 100."""
    if not (isinstance(status, str) and status[:3].isdigit()) or "\n" in status or "\r" in status:
        raise ValueError(f"a status must begin with three digits, and is one line: {status!r}")
    code = int(status[:3])
    if code < _FIRST_FINAL:
        raise ValueError(f"a response ends with a status from {_FIRST_FINAL} on: {status!r}")
    return code


@lru_cache(maxsize=_CACHE_SIZE)
def _is_name(name: str) -> bool:
    return _token(name) is not None


@lru_cache(maxsize=_CACHE_SIZE)
def check_name(name: str) -> None:
    """Raise `ValueError` if the name of a header is invalid."""
    if not _is_name(name):
        raise ValueError(f"{name!r} is no name of a header")


def is_valid_header(name: str, value: str) -> bool:
    """Return whether a header field can be sent (RFC 9110, 5)."""
    if name == "content-length":
        return value.isascii() and value.isdecimal()
    return _is_name(name) and ((value.isascii() and value.isprintable()) or _value(value) is not None)


@lru_cache(maxsize=CLIENT_CACHE_SIZE)
def best_offer(accept: str, offers: Offers) -> str | None:
    """Return the offer that an Accept header prefers. None if it excludes them all.

    Of equal weights, a media type that the header names comes before one that only a wildcard covers, then what it
    names first, then the first offer. Parameters of a media range other than `q` are ignored (CONTRACT 2). A header
    without any valid media range counts as `*/*`. Falcon's `best_match` is not used: it keeps the parsed ranges of 128
    headers, hundreds of MB.
    """
    weights: dict[str, float] = {}
    for match in filter(None, map(_range, _other_parameter.sub("", accept.lower()).split(","))):
        kind = "*/*" if match["type"] == "*" else match["type"]
        weights[kind] = max(weights.get(kind, 0.0), float(match["weight"] or 1))
    if not weights:
        return offers[0]
    named = list(weights)

    def rank(offer: str) -> tuple[float, int, int]:
        kind = offer.partition(";")[0].strip().lower()
        ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")  # the most specific one counts
        wildcards, found = next(((i, each) for i, each in enumerate(ranges) if each in weights), (0, None))
        return (0.0, 0, 0) if found is None else (weights[found], -wildcards, -named.index(found))

    best = max(offers, key=rank)
    return best if rank(best)[0] > 0 else None


def preferred(req: falcon.Request, offers: Sequence[str]) -> str:
    """Return the media type to answer a request with.

    Raises:
        falcon.HTTPNotAcceptable: The request's `Accept` excludes every offer.
    """
    best = best_offer(req.accept or "*/*", tuple(offers))
    if best is None:
        raise not_acceptable(tuple(offers))
    return best


def not_acceptable(offers: Offers) -> falcon.HTTPError:
    """Return the error of a request whose `Accept` excludes all offers."""
    return falcon.HTTPNotAcceptable(description=f"This resource is made as {', '.join(offers)}.")


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
    """Close a stream if it can be closed."""
    close = getattr(stream, "close", None)
    if close is not None:
        close()
