"""The components of a description, which its operations share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import responses
from typing import TYPE_CHECKING, Any, Final

from plughost.http import DescribedErrorFormat, ErrorFormat, Problem, Violation

if TYPE_CHECKING:
    from plughost import RouteGroup
    from plughost_openapi.schemas import Schemas

Object = dict[str, Any]

_SCHEMES: Final[Mapping[str, Object]] = {
    "basic": {"type": "http", "scheme": "basic", "description": "User name and password (RFC 7617)."},
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token (RFC 6750), such as one from the login of the library service.",
    },
}
_REQUEST_ID: Final = "X-Request-ID"

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

_RETRY_AFTER: Final = {"Retry-After": "Seconds to wait before trying again."}
HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "The required authentication scheme, and what was wrong."},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
"""The headers of the host's errors, by status."""


class Components:
    """The Components Object, filled while the operations are generated."""

    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas
        self._sections: dict[str, Object] = {"schemas": schemas.components}

    def as_object(self) -> Object:
        """Return the Components Object."""
        return {name: section for name, section in self._sections.items() if section}

    def security(self, scheme: str) -> Object:
        """Return the requirement of a security scheme."""
        self._add("securitySchemes", scheme, _SCHEMES.get(scheme, {"type": "http", "scheme": scheme}))
        return {scheme: []}

    def request_id(self) -> Object:
        """Return the parameter that every operation takes."""
        description = (
            "Identifies the request in the host's log and in the response: 1 to 128 characters of `A-Z a-z 0-9 . _ -`;"
            " anything else is replaced."
        )
        return self._header_parameter("RequestID", _REQUEST_ID, description, {"type": "string"})

    def idempotency_key(self) -> Object:
        """Return the parameter of operations whose requests can be retried."""
        description = (
            "Identifies the client's intention, in 1 to 255 visible ASCII characters: the answer to the first request"
            " with a key is the answer to all that follow within a day, in the version that made it."
        )
        schema = {"type": "string", "pattern": "^[!#-\\[\\]-~]{1,255}$"}
        return self._header_parameter("IdempotencyKey", "Idempotency-Key", description, schema)

    def api_version(self, versions: tuple[str, ...]) -> Object:
        """Return the parameter that selects a minor version (CONTRACT 2). Each set of versions has its own schema."""
        majors = dict.fromkeys(version.partition(".")[0] for version in versions)
        name = f"APIVersion{'Or'.join(version.replace('.', '_') for version in versions)}"
        schema = self._add("schemas", name, {"type": "string", "enum": [*versions, *majors], "title": name})
        description = f"The requested minor version; by default {versions[-1]}."
        return self._header_parameter(name, "API-Version", description, schema)

    def _header_parameter(self, component: str, name: str, description: str, schema: Object) -> Object:
        parameter = {"name": name, "in": "header", "description": description, "schema": schema}
        return self._add("parameters", component, parameter)

    def headers(self, declared: Mapping[str, str], *, versioned: bool) -> Object:
        """Return the headers of a response: the declared ones, and the host's own."""
        headers: Object = {
            name: {"description": description, "schema": {"type": "string"}} for name, description in declared.items()
        }
        headers[_REQUEST_ID] = self._header("RequestID", "Identifies the request in the host's log.")
        if versioned:
            headers["API-Version"] = self._header("APIVersion", "The minor version that served the request.")
        return headers

    def error_content(self, errors: ErrorFormat, status: int, description: str) -> Object:
        """Return the content of an error in a group's format, with an example."""
        media = {"schema": self.schemas.of(body_model(errors), "serialization")}
        shown = _example(errors, status, description.replace("`", ""))
        if shown is not None:
            media["example"] = self._with_stable_values(shown, media["schema"])
        return {_media_type(errors): media}

    def error(self, group: RouteGroup, status: int, headers: Mapping[str, str]) -> Object:
        """Return a reference to the host's response for an error in a group."""
        versioned = bool(group.versions)
        description = _DESCRIPTIONS.get(status) or responses.get(status, "Answer")
        response = {
            "description": description,
            "headers": self.headers(headers, versioned=versioned),
            "content": self.error_content(group.errors, status, description),
        }
        name = f"{type(group.errors).__name__}{'Versioned' if versioned else ''}{status}"
        return self._add("responses", name, response)

    def _with_stable_values(self, example: Any, schema: Object) -> Any:
        """Return an example with the values that its schema gives as examples, so that times, say, never change."""
        name = schema.get("$ref", "").rpartition("/")[2]
        properties = self._sections["schemas"].get(name, schema).get("properties", {})
        if not isinstance(example, dict):
            return example
        return {key: properties.get(key, {}).get("examples", [value])[0] for key, value in example.items()}

    def _header(self, name: str, description: str) -> Object:
        return self._add("headers", name, {"description": description, "schema": {"type": "string"}})

    def _add(self, section: str, name: str, value: Object) -> Object:
        """Return a reference to a component. If its name belongs to a different one, it gets a number."""
        existing = self._sections.setdefault(section, {})
        number, free = 2, name
        while existing.setdefault(free, value) != value:
            free = f"{name}{number}"
            number += 1
        return {"$ref": f"#/components/{section}/{free}"}


def _media_type(errors: ErrorFormat) -> str:
    """Return the media type of a format's errors, without parameters."""
    return errors.media_type.partition(";")[0].strip()


def body_model(errors: ErrorFormat) -> Any:
    """Return the model of a format's errors. If the format has none, derive a type from its media type."""
    if isinstance(errors, DescribedErrorFormat):
        return errors.body
    return dict[str, Any] if _media_type(errors).endswith("json") else str


def _example(errors: ErrorFormat, status: int, detail: str) -> Any:
    """Return how a format renders an error, or None if its media type promises JSON that it isn't."""
    is_violated = status == errors.validation_status != 400  # 400 can also be malformed JSON
    violations = (Violation("name", "must not be blank"),) if is_violated else ()
    try:
        body = errors.render(Problem(status, responses.get(status, "Answer"), detail, violations)).decode()
        return json.loads(body) if _media_type(errors).endswith("json") else body
    except ValueError:
        return None
