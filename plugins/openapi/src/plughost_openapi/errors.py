"""The errors that the host makes beside what a plugin declares (CONTRACT 2): which an operation can end in."""

from __future__ import annotations

import http
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plughost.http import DescribedErrorFormat, ErrorFormat, Problem

if TYPE_CHECKING:
    from plughost import Operation

_DETAILS: Final[Mapping[int, str]] = {
    400: "The request can't be used: malformed JSON, a broken rule, or an API version that is not spoken here.",
    401: "A token is needed.",
    403: "The token lacks a role, or a web page of another site sends the request.",
    404: "There is nothing at this address.",
    406: "The request's Accept excludes every media type that this resource is made as.",
    409: "The first request with this Idempotency-Key is in progress.",
    413: "The request body is larger than this resource accepts.",
    415: "The request body is not application/json.",
    422: "The request breaks rules.",
    429: "Too many requests.",
    500: "The server failed on this request; its log tells more under the request id.",
    503: "What this resource needs is out of reach at the moment.",
}

RETRY_AFTER: Final[Mapping[str, str]] = {"Retry-After": "Seconds until it is worth trying again."}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What of an operation's surroundings makes it end in errors.

    Attributes:
        errors: The error format of its group.
        versioned: Whether the group speaks minor versions.
        fields: Whether the path has fields.
        unsafe: Whether the method changes something (RFC 9110, 9.2.1).
        stores: Whether it may use stores.
        limited: Whether requests are counted against a rate limit.
        told: The headers that every response has, and what they say.
    """

    errors: ErrorFormat
    versioned: bool
    fields: bool
    unsafe: bool
    stores: bool
    limited: bool
    told: Mapping[str, str]


def host_errors(operation: Operation, around: Surroundings) -> Iterator[tuple[int, str, Mapping[str, str]]]:
    """Yield the errors that the host answers an operation's requests with: status, description and headers."""
    body = operation.request is not None
    successes = [answer for status, answer in operation.responses.items() if 200 <= status < 300]
    has_body = not successes or any(answer.model is not None or answer.schema is not None for answer in successes)
    possible = {
        400: body or around.versioned or operation.idempotent,
        401: bool(operation.security),
        403: bool(operation.security) or around.unsafe,
        404: around.fields,
        406: bool(operation.produces) and has_body,
        409: operation.idempotent,
        413: True,
        415: body,
        422: operation.idempotent,
        429: around.limited,
        500: True,
        503: around.stores or around.limited or operation.idempotent,
    }
    if body or any(each.refusal == 400 for each in operation.parameters):
        possible[around.errors.validation_status] = True
    for status in sorted(possible):
        if possible[status]:
            yield status, _DETAILS.get(status, phrase(status)), RETRY_AFTER if status in (429, 503) else {}


def phrase(status: int) -> str:
    """Return the standard phrase of a status."""
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Answer"


def media_type(errors: ErrorFormat) -> str:
    """Return what a format's errors are sent as, without parameters."""
    return errors.media_type.partition(";")[0].strip()


def body_model(errors: ErrorFormat) -> Any:
    """Return the type of a format's errors; where the format doesn't tell, what its media type does."""
    if isinstance(errors, DescribedErrorFormat):
        return errors.body
    return dict[str, Any] if media_type(errors).endswith("json") else str


def example(errors: ErrorFormat, status: int, detail: str) -> Any:
    """Return what a format writes for an error; None where that is not the JSON that its media type promises."""
    try:
        body = errors.render(Problem(status, phrase(status), detail)).decode()
        return json.loads(body) if media_type(errors).endswith("json") else body
    except ValueError:
        return None
