"""The errors that an engine answers itself, because the request never reached an application."""

from __future__ import annotations

import http
import re
import uuid
from typing import Final

from plughost.http._errors import PROBLEM_DETAILS, Problem

# For how long the rest of a refused body is read and dropped: in all, without anything coming, and how much.
LINGER_SECONDS: Final = 15.0
LINGER_IDLE_SECONDS: Final = 1.0
LINGER_BYTES: Final = 64 * 1024 * 1024

LONGEST_TARGET: Final = 8192
"""Bytes of path and query that are read: responses repeat them in links, and no client reads a head without end."""
LONGEST_NUMBER: Final = 19
"""Digits of a Content-Length."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
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


def engine_error(status: int, request_id: str = "") -> tuple[str, list[tuple[str, str]], bytes]:
    """Return status line, headers and body of an error, as RFC 9457 problem details (CONTRACT 2).

    Args:
        status: The HTTP status code.
        request_id: What the client sent as `X-Request-ID`; kept when it is well-formed.
    """
    phrase = http.HTTPStatus(status).phrase
    body = PROBLEM_DETAILS.render(Problem(status, phrase, _DETAILS.get(status, f"{phrase}.")))
    headers = [
        ("Content-Type", PROBLEM_DETAILS.media_type),
        ("Content-Length", str(len(body))),
        ("X-Request-ID", request_id if _REQUEST_ID.fullmatch(request_id) else str(uuid.uuid4())),
        ("X-Content-Type-Options", "nosniff"),
    ]
    return f"{status} {phrase}", headers, body
