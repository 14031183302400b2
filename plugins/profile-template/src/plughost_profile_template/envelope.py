"""The envelope: the JSON shape of every response of this service (SPEC Response envelope, CONTRACT 7).

A resource calls `success` for a success. `ENVELOPE` is the error format of the route group: with it, the host renders
every error below the prefix, including its own (404, 405, 413, 500 ...). So a resource only raises Falcon's errors, or
reads its body with `read_body`, and never builds an error's body.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from plughost.http import encode

if TYPE_CHECKING:
    from plughost.http import Problem

DataT = TypeVar("DataT")


class Success(BaseModel, Generic[DataT]):
    """A successful response with the result in `data`."""

    status: Literal["success"]
    data: DataT
    # Of a factory, no default is in the schema: the member may be absent, and is never null.
    message: str = Field(default_factory=str, description="Present after a change.")
    code: int = Field(description="The HTTP status code.", examples=[200])
    timestamp: int = Field(description="Time of the response, in milliseconds since 1970.", examples=[1790000000000])


class FieldError(BaseModel):
    """One invalid field."""

    field: str
    message: str


class Error(BaseModel):
    """An error response, with the invalid fields if there are any."""

    model_config = ConfigDict(title="ErrorEnvelope")

    status: Literal["error"]
    message: str
    code: int = Field(description="The HTTP status code.")
    timestamp: int = Field(description="Time of the response, in milliseconds since 1970.", examples=[1790000000000])
    errors: list[FieldError] = Field(
        default_factory=list, description="The invalid fields, all at once; absent if there are none."
    )


def success(data: object, *, message: str | None = None, code: int = 200) -> dict[str, Any]:
    """Return the envelope of a successful response, for `resp.media`.

    Args:
        data: The result.
        message: A description of the change, if there was one.
        code: The HTTP status code.
    """
    envelope: dict[str, Any] = {"status": "success", "data": data, "code": code, "timestamp": now()}
    if message is not None:
        envelope["message"] = message
    return envelope


@dataclass(frozen=True, slots=True)
class Envelope:
    """The error format by which the host renders the errors of a route group (see `plughost.http.ErrorFormat`).

    Attributes:
        media_type: The Content-Type of every error.
        validation_status: The status for a body that is well-formed but invalid.
    """

    media_type: str = "application/json"
    validation_status: int = 422

    @property
    def body(self) -> type[Error]:
        """The model of a body, for the API description."""
        return Error

    def render(self, problem: Problem) -> bytes:
        """Return the body of an error."""
        envelope: dict[str, Any] = {
            "status": "error",
            "message": "Validation failed." if problem.violations else problem.detail,
            "code": problem.status,
            "timestamp": now(),
        }
        if problem.violations:
            envelope["errors"] = [{"field": each.field, "message": each.message} for each in problem.violations]
        return encode(envelope)


ENVELOPE: Final = Envelope()


def now() -> int:
    """Return the time in milliseconds since 1970, the unit of all times of this service."""
    return time.time_ns() // 1_000_000
