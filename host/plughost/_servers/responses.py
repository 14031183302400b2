"""Responses: errors of the engines themselves, header fields as HTTP/2 encodes them, slices (PEP 3333, RFC 9110 5)."""

from __future__ import annotations

import http
import logging
import uuid
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final
from wsgiref.util import is_hop_by_hop

from plughost.http._errors import PHRASES, PROBLEM_DETAILS, ErrorFormat, Problem
from plughost.http._request import acceptable_id
from plughost.http._response import check_name

_LOGGER: Final = logging.getLogger("plughost._servers")

# Limits for reading and discarding the rest of a refused body: in all, without any data, and in bytes.
LINGER_SECONDS: Final = 15.0
LINGER_IDLE_SECONDS: Final = 1.0
LINGER_BYTES: Final = 64 * 1024 * 1024

MAX_DIGITS: Final = 19
"""Digits of a Content-Length."""

SLICE: Final = 256 * 1024
"""Bytes of a part that are sent at a time. Some slices are buffered for each slow reader."""
HTTP2_WINDOW: Final = 65535
"""Bytes of a response that an HTTP/2 client accepts in advance by default (RFC 9113 6.9.2)."""

_DETAILS: Final = {
    400: "The request is malformed.",
    408: "The request took too long to arrive.",
    413: "The request body is too large.",
    414: "The address is longer than 8192 bytes.",
    431: "The header fields of the request are too large.",
    500: "The server could not answer the request.",
    503: "The server has too much to do at the moment.",
    505: "The server speaks HTTP/1.0, HTTP/1.1 and, over TLS, HTTP/2.",
}
_CACHEABLE: Final = frozenset({"api-version", "content-type", "vary", "x-content-type-options", "x-frame-options"}) | {
    "content-security-policy",
    "referrer-policy",
}  # fields that have few values each
_MAX_CACHED_FIELDS: Final = 256
FIELD_CACHE: Final[dict[tuple[str, str], tuple[bytes, bytes]]] = {}
"""Fields that have been sent, as HTTP/2 encodes them."""


def engine_error(
    status: int, request_id: str = "", errors: ErrorFormat = PROBLEM_DETAILS
) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return status line, headers and body of an error, in the format of the plugin whose path it is (CONTRACT 2).

    The `X-Request-ID` that the client sent is kept when it is well-formed.
    """
    phrase = PHRASES[status]
    problem = Problem(status, phrase, _DETAILS.get(status, f"{phrase}."))
    try:
        body = errors.render(problem)
    except Exception:
        _LOGGER.exception("an error format failed")
        errors = PROBLEM_DETAILS
        body = errors.render(problem)
    headers = [
        ("Content-Type", errors.media_type),
        ("Content-Length", str(len(body))),
        ("X-Request-ID", request_id if acceptable_id(request_id) else str(uuid.uuid4())),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(("Retry-After", "1"))
    return f"{status} {phrase}", headers, body


def encode_field(field: tuple[str, str]) -> tuple[bytes, bytes]:
    """Return a header field as HTTP/2 encodes it.

    Raises:
        AssertionError: It is a hop-by-hop field, which only the server may set.
        ValueError: It is not a valid field, or contains a line break.
    """
    name, value = field
    if not value.isprintable() and ("\n" in value or "\r" in value):
        raise ValueError(f"the header {name} contains a line break")
    raw = _encode_name(name), value.encode("latin-1")
    if name in _CACHEABLE and len(FIELD_CACHE) < _MAX_CACHED_FIELDS:
        FIELD_CACHE[field] = raw
    return raw


@lru_cache(maxsize=512)
def _encode_name(name: str) -> bytes:
    check_name(name)
    if is_hop_by_hop(name) or name.lower() == "trailer":  # which wsgiref has misspelt
        raise AssertionError(f"{name} is a hop-by-hop header, which an application must not set (PEP 3333)")
    return name.lower().encode()


def slices(parts: Iterable[bytes], tail: int = 0, headers: Iterable[tuple[bytes, bytes]] = ()) -> Iterator[bytes]:
    """Yield parts, large ones in slices: granian takes several ahead, whatever their size, and waitress copies each.

    Args:
        parts: The parts.
        tail: How many bytes come last, one by one: of a response longer than `HTTP2_WINDOW`, and without a
            Content-Length of each part that is. HTTP/2 holds back what its client has no room for. With so little
            still to send, room for another part tells that the rest is out.
        headers: The response's.
    """
    length = int(next((value for name, value in headers if name == b"content-length"), 0))
    sent = 0
    for part in parts:
        size = end = len(part)
        if (length or size) > HTTP2_WINDOW:
            end = min(size, max(0, size - tail, length - tail - sent))
        if end == size <= SLICE:
            yield part
        else:
            for begin in range(0, end, SLICE):
                yield part[begin : min(begin + SLICE, end)]
            for at in range(end, size):
                yield part[at : at + 1]
        sent += size
