"""What operations of a description share, each under one name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from plughost_openapi import errors

if TYPE_CHECKING:
    from plughost_openapi.errors import Surroundings
    from plughost_openapi.schemas import Schemas

Object = dict[str, Any]

_SCHEMES: Final[Mapping[str, Object]] = {
    "basic": {"type": "http", "scheme": "basic", "description": "User name and password (RFC 7617)."},
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token (RFC 6750), such as the library service's login hands out.",
    },
}
_REQUEST_ID: Final = "X-Request-ID"


class Components:
    """The description's `components`, which grow while its operations are written."""

    def __init__(self, schemas: Schemas) -> None:
        """Begin with the schemas of the models."""
        self._schemas = schemas
        self._sections: dict[str, Object] = {"schemas": schemas.components}
        self._errors: dict[tuple[Any, ...], Object] = {}

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
            "Names the request in the host's log and in the response: 1 to 128 characters of `A-Z a-z 0-9 . _ -`;"
            " anything else is replaced."
        )
        parameter = {"name": _REQUEST_ID, "in": "header", "description": description, "schema": {"type": "string"}}
        return self._add("parameters", "RequestID", parameter)

    def idempotency_key(self) -> Object:
        """Return the parameter of operations whose requests may be sent again."""
        description = (
            "Names what the client wants done, in 1 to 255 visible ASCII characters: the answer to the first request"
            " with a key is the answer to all that follow within a day, in the version that made it."
        )
        schema = {"type": "string", "pattern": "^[!#-\\[\\]-~]{1,255}$"}
        parameter = {"name": "Idempotency-Key", "in": "header", "description": description, "schema": schema}
        return self._add("parameters", "IdempotencyKey", parameter)

    def api_version(self, spoken: tuple[str, ...]) -> Object:
        """Return the parameter that chooses a minor version (CONTRACT 2), with one schema for each set of them."""
        majors = dict.fromkeys(version.partition(".")[0] for version in spoken)
        name = f"APIVersion{'Or'.join(version.replace('.', '_') for version in spoken)}"
        parameter = {
            "name": "API-Version",
            "in": "header",
            "description": f"The minor version to be served by; {spoken[-1]} where it is absent.",
            "schema": self._add("schemas", name, {"type": "string", "enum": [*spoken, *majors], "title": name}),
        }
        return self._add("parameters", name, parameter)

    def headers(self, told: Mapping[str, str], *, versioned: bool) -> Object:
        """Return the headers of a response: those that it is declared with, and the host's own."""
        headers: Object = {
            name: {"description": description, "schema": {"type": "string"}} for name, description in told.items()
        }
        headers[_REQUEST_ID] = self._header("RequestID", "Names the request in the host's log.")
        if versioned:
            headers["API-Version"] = self._header("APIVersion", "The minor version that served the request.")
        return headers

    def error_content(self, status: int, description: str, around: Surroundings) -> Object:
        """Return the content of an error in the group's format, with an example."""
        media = {"schema": self._schemas.of(errors.body_model(around.errors), "serialization")}
        example = errors.example(around.errors, status, description.replace("`", ""))
        if example is not None:
            media["example"] = self._steady(example, media["schema"])
        return {errors.media_type(around.errors): media}

    def error(self, status: int, description: str, headers: Mapping[str, str], around: Surroundings) -> Object:
        """Return a reference to the response that the host makes of an error."""
        key = around.errors, around.versioned, status, description, tuple(headers)
        if key not in self._errors:
            self._errors[key] = self._error(status, description, headers, around)
        return self._errors[key]

    def _error(self, status: int, description: str, headers: Mapping[str, str], around: Surroundings) -> Object:
        content = self.error_content(status, description, around)
        shown = self.headers(headers, versioned=around.versioned)
        name = f"{type(around.errors).__name__}{'Versioned' if around.versioned else ''}{status}"
        return self._add("responses", name, {"description": description, "headers": shown, "content": content})

    def _steady(self, example: Any, schema: Object) -> Any:
        """Return an example in which members whose schema has an example are that one: a time, say, never changes."""
        name = schema.get("$ref", "").rpartition("/")[2]
        properties = self._sections["schemas"].get(name, schema).get("properties", {})
        if not isinstance(example, dict):
            return example
        return {key: properties.get(key, {}).get("examples", [value])[0] for key, value in example.items()}

    def _header(self, name: str, description: str) -> Object:
        return self._add("headers", name, {"description": description, "schema": {"type": "string"}})

    def _add(self, section: str, name: str, value: Object) -> Object:
        """Return a reference to a component; another one of the same name makes it get a number."""
        existing = self._sections.setdefault(section, {})
        number, free = 2, name
        while existing.setdefault(free, value) != value:
            free = f"{name}{number}"
            number += 1
        return {"$ref": f"#/components/{section}/{free}"}
