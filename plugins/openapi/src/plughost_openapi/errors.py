"""The errors of an operation that the host adds to the declared ones (CONTRACT 2)."""

from __future__ import annotations

import http
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plughost.http import DescribedErrorFormat, ErrorFormat, Problem

if TYPE_CHECKING:
    from plughost import Operation

_DESCRIPTIONS: Final[Mapping[int, str]] = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """The context of an operation that decides which errors the host can return.

    Attributes:
        errors: The error format of its group.
        versioned: Whether the group has minor versions.
        fields: Whether the path has fields.
        unsafe: Whether the method changes something (RFC 9110, 9.2.1).
        stores: Whether it may use stores.
        limited: Whether requests are counted against a rate limit.
        common_headers: The headers of every response, with their descriptions.
    """

    errors: ErrorFormat
    versioned: bool
    fields: bool
    unsafe: bool
    stores: bool
    limited: bool
    common_headers: Mapping[str, str]


def host_errors(operation: Operation, context: OperationContext) -> Iterator[tuple[int, str, Mapping[str, str]]]:
    """Yield status, description and headers of each error that the host can return for an operation."""
    body = operation.request is not None
    successes = [answer for status, answer in operation.responses.items() if 200 <= status < 300]
    has_body = not successes or any(answer.model is not None or answer.schema is not None for answer in successes)
    possible = {
        400: body or context.versioned or operation.idempotent,
        401: bool(operation.security),
        403: bool(operation.security) or context.unsafe,
        404: context.fields,
        406: bool(operation.produces) and has_body,
        409: operation.idempotent,
        413: True,
        415: body,
        422: operation.idempotent,
        429: context.limited,
        500: True,
        503: context.stores or context.limited or operation.idempotent,
    }
    if body or any(each.refusal == 400 for each in operation.parameters):
        possible[context.errors.validation_status] = True
    for status in sorted(possible):
        if possible[status]:
            yield status, _DESCRIPTIONS.get(status, phrase(status)), RETRY_AFTER if status in (429, 503) else {}


def phrase(status: int) -> str:
    """Return the standard phrase of a status."""
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Answer"


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
        body = errors.render(Problem(status, phrase(status), detail)).decode()
        return json.loads(body) if media_type(errors).endswith("json") else body
    except ValueError:
        return None
