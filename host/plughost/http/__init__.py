"""HTTP: what plugin authors need beside Falcon itself, and how the host mounts what they declare."""

from __future__ import annotations

from plughost.http.authentication import principal_of
from plughost.http.errors import (
    PLAIN_TEXT,
    PROBLEM_DETAILS,
    DescribedErrorFormat,
    ErrorFormat,
    Invalid,
    PlainText,
    Problem,
    ProblemDetails,
    Violation,
)
from plughost.http.negotiation import preferred
from plughost.http.request import Request, secure_url
from plughost.http.routing import MAX_ID, parse_id

__all__ = [
    "MAX_ID",
    "PLAIN_TEXT",
    "PROBLEM_DETAILS",
    "DescribedErrorFormat",
    "ErrorFormat",
    "Invalid",
    "PlainText",
    "Problem",
    "ProblemDetails",
    "Request",
    "Violation",
    "parse_id",
    "preferred",
    "principal_of",
    "secure_url",
]
