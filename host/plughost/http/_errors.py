"""Error formats: how a route group renders the errors below its prefix.

A resource raises Falcon's `HTTPError`s (or `Invalid` for bad input). The host converts each into a `Problem`, which
the group's format renders. The same holds for the host's own errors (404, 405, 413 ...).
"""

from __future__ import annotations

import http
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, runtime_checkable

import falcon
import msgspec
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PHRASES: Final[Mapping[int, str]] = {status.value: status.phrase for status in http.HTTPStatus} | {
    413: "Content Too Large",  # as in RFC 9110; Python has older phrases before 3.13
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One invalid field of a request.

    Attributes:
        field: The member's name, dotted where nested. Empty for the body as a whole.
        message: What is wrong with it, such as `must not be blank`.
    """

    field: str
    message: str

    def __str__(self) -> str:
        """Return both in a line, or the message alone if it is about the body as a whole."""
        return f"{self.field}: {self.message}" if self.field else self.message


class Invalid(falcon.HTTPError):
    """A well-formed request breaks rules: all violations at once.

    The status is the error format's `validation_status`, 400 for most.
    """

    def __init__(self, violations: Iterable[Violation]) -> None:
        """Store the violations, in the order of the fields."""
        self.violations: tuple[Violation, ...] = tuple(violations)
        super().__init__(
            400, title="Constraint Violation", description="; ".join(str(each) for each in self.violations)
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """An error for a client, before a format renders it.

    Attributes:
        status: The HTTP status code.
        title: A short summary, the same for every occurrence.
        detail: What happened this time. Never empty, without internal details.
        violations: The invalid fields of a well-formed request that breaks rules.
        extensions: Further members, such as the host's `trace_id`.
    """

    status: int
    title: str
    detail: str
    violations: tuple[Violation, ...] = ()
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: falcon.HTTPError, validation_status: int = 400) -> Problem:
        """Return the problem for a Falcon error."""
        violations = error.violations if isinstance(error, Invalid) else ()
        status = validation_status if violations else error.status_code
        phrase = PHRASES.get(status, "Error")
        is_default = error.title in {"", None, falcon.code_to_http_status(error.status)}
        title = phrase if is_default else error.title
        detail = (error.description or f"{title}.").encode("utf-8", "replace").decode()  # lone surrogates have no UTF-8
        return cls(status, title, detail, violations)


class ErrorFormat(Protocol):
    """How the errors of a route group are rendered."""

    @property
    def media_type(self) -> str:
        """The Content-Type of every error."""

    @property
    def validation_status(self) -> int:
        """The status of a request that breaks rules."""

    def render(self, problem: Problem) -> bytes:
        """Return the body of an error response."""


@runtime_checkable
class DescribedErrorFormat(ErrorFormat, Protocol):
    """An error format that describes its bodies. Of others, the API description shows only the media type."""

    @property
    def body(self) -> Any:
        """The type of the body, as in `Response.model`: a pydantic model, a dataclass, `str` ..."""


class ProblemJSON(BaseModel):
    """Problem details (RFC 9457)."""

    model_config = ConfigDict(title="ProblemDetails")

    type: str = Field(description="What kind of problem it is, as a URI.")
    title: str = Field(description="A short summary, the same for every occurrence.")
    status: int = Field(description="The HTTP status code.")
    detail: str = Field(description="What happened this time.")
    violations: list[Violation] = Field(
        default_factory=list, description="The invalid fields; absent unless the request breaks rules."
    )


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """RFC 9457 problem details."""

    media_type: str = "application/problem+json"
    validation_status: int = 400
    body: ClassVar[Any] = ProblemJSON

    def render(self, problem: Problem) -> bytes:
        """Return the problem as a JSON object."""
        members: dict[str, Any] = {
            "type": "about:blank",
            "title": problem.title,
            "status": problem.status,
            "detail": problem.detail,
            **problem.extensions,
        }
        if problem.violations:
            members["violations"] = problem.violations
        return msgspec.json.encode(members)


@dataclass(frozen=True, slots=True)
class PlainText:
    """The detail alone, or a `field: message` line for each invalid field (CONTRACT 4)."""

    media_type: str = "text/plain; charset=utf-8"
    validation_status: int = 400
    body: ClassVar[Any] = str

    def render(self, problem: Problem) -> bytes:
        """Return the problem as lines of text."""
        if problem.violations:
            return "\n".join(map(str, problem.violations)).encode()
        return problem.detail.encode("utf-8", "replace")


PROBLEM_DETAILS: Final = ProblemDetails()
PLAIN_TEXT: Final = PlainText()
