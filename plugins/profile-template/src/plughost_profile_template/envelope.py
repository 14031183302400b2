"""The envelope: the one shape that every answer of this service has (SPEC Response envelope, CONTRACT 7).

Successes are put into it by `success`. Errors come in by themselves: `ENVELOPE` is the error format of the route
group, and the host has it write every error below the prefix, its own included (404, 405, 413, 500 ...). So a resource
raises Falcon's errors, or reads its body with `read_body`, and never builds an error's body.
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
    """A success, and what was asked for in `data`."""

    status: Literal["success"]
    data: DataT
    message: str | None = Field(None, description="Present after a change.")
    code: int = Field(description="The HTTP status code.", examples=[200])
    timestamp: int = Field(description="When it was answered, in milliseconds since 1970.", examples=[1790000000000])


class FieldError(BaseModel):
    """One invalid field."""

    field: str
    message: str


class Error(BaseModel):
    """An error, and the invalid fields where there are some."""

    model_config = ConfigDict(title="ErrorEnvelope")

    status: Literal["error"]
    message: str
    code: int = Field(description="The HTTP status code.")
    timestamp: int = Field(description="When it was answered, in milliseconds since 1970.", examples=[1790000000000])
    errors: list[FieldError] | None = Field(None, description="The invalid fields, all at once.")


def success(data: object, *, message: str | None = None, code: int = 200) -> dict[str, Any]:
    """Return the envelope of a success, for `resp.media`.

    Args:
        data: What the client asked for.
        message: What was done, after a change.
        code: The HTTP status code.
    """
    envelope: dict[str, Any] = {"status": "success", "data": data, "code": code, "timestamp": now()}
    if message is not None:
        envelope["message"] = message
    return envelope


@dataclass(frozen=True, slots=True)
class Envelope:
    """The error format: how the host writes the errors of a route group (see `plughost.http.ErrorFormat`).

    Attributes:
        media_type: The Content-Type of every error.
        validation_status: The status of a body that is well-formed and breaks rules.
    """

    media_type: str = "application/json"
    validation_status: int = 422

    @property
    def body(self) -> type[Error]:
        """What a body looks like, for the API description."""
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
    """Return the time in milliseconds since 1970, as all times of this service are."""
    return time.time_ns() // 1_000_000
