"""Errors: what the host answers in addition to the declared responses (CONTRACT 2), in the format of a group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import responses
from typing import Any, Final

from plughost.http import DescribedErrorFormat, ErrorFormat, Problem

DESCRIPTIONS: Final[Mapping[int, str]] = {
    400: "The request is invalid: malformed JSON, an invalid value, or an unsupported API version.",
    401: "A token is needed.",
    403: "The token lacks a role, or a web page of another site sends the request.",
    404: "There is nothing at this address.",
    406: "The request's Accept excludes every media type of this resource.",
    409: "The first request with this Idempotency-Key is in progress.",
    413: "The request body is larger than this resource accepts.",
    415: "The request body is not application/json.",
    422: "The request is invalid.",
    429: "Too many requests.",
    500: "The server failed on this request; its log has details under the request id.",
    503: "A service or store that this resource needs is unavailable at the moment.",
}

RETRY_AFTER: Final[Mapping[str, str]] = {"Retry-After": "Seconds to wait before trying again."}


def media_type(errors: ErrorFormat) -> str:
    """Return the media type of a format's errors, without parameters."""
    return errors.media_type.partition(";")[0].strip()


def body_model(errors: ErrorFormat) -> Any:
    """Return the model of a format's errors. If the format has none, derive a type from its media type."""
    if isinstance(errors, DescribedErrorFormat):
        return errors.body
    return dict[str, Any] if media_type(errors).endswith("json") else str


def example(errors: ErrorFormat, status: int, detail: str) -> Any:
    """Return how a format renders an error, or None if its media type promises JSON that it isn't."""
    try:
        body = errors.render(Problem(status, responses.get(status, "Answer"), detail)).decode()
        return json.loads(body) if media_type(errors).endswith("json") else body
    except ValueError:
        return None
