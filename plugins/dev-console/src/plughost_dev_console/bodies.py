"""Examples of an operation's body, in a media type that it reads: JSON, a form, or whatever else it consumes."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import falcon

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plughost import Operation

_BOUNDARY: Final = "the-next-part"
_WRITTEN: Final = (falcon.MEDIA_JSON, falcon.MEDIA_URLENCODED, falcon.MEDIA_MULTIPART)


@dataclass(frozen=True, slots=True)
class Body:
    """An example of a body.

    Attributes:
        media_type: Its `Content-Type`.
        text: It, for people to edit.
        options: curl's options that send it.
    """

    media_type: str
    text: str
    options: str


def body_of(operation: Operation) -> Body | None:
    """Return an example of an operation's body: a declared one, or one made from its model. None if it reads none."""
    if operation.request is None and not operation.consumes:
        return None
    consumes = operation.consumes or (falcon.MEDIA_JSON,)
    kind = next((each for each in _WRITTEN if any(fnmatchcase(each, one) for one in consumes)), consumes[0])
    is_json = kind == falcon.MEDIA_JSON or kind.endswith("+json")
    if operation.request is None or not (is_json or kind in _WRITTEN):
        return Body(kind, "", f"-H 'Content-Type: {kind}' --data-binary @FILE")
    schema = _schema_of(operation)
    example = next(iter(operation.examples.values()), None)
    if example is None:
        example = _of_schema(schema, schema.get("$defs", {}))
    if is_json or not isinstance(example, dict):
        kind = kind if is_json else falcon.MEDIA_JSON
        compact = json.dumps(example, default=_plain, ensure_ascii=False)
        text = json.dumps(example, default=_plain, ensure_ascii=False, indent=2)
        return Body(kind, text, f"-H 'Content-Type: {kind}' -d {shlex.quote(compact)}")
    fields = list(_fields(example))
    if kind == falcon.MEDIA_URLENCODED:
        text = urlencode(fields)
        return Body(kind, text, f"-d {shlex.quote(text)}")
    files = dict(_files(schema))
    options = (f"-F {shlex.quote(f'{name}=@FILE' if name in files else f'{name}={value}')}" for name, value in fields)
    return Body(f"{kind}; boundary={_BOUNDARY}", _multipart(fields, files), " ".join(options))


def _schema_of(operation: Operation) -> Mapping[str, Any]:
    try:
        return operation.request.model_json_schema() if operation.request is not None else {}
    except Exception:  # noqa: BLE001 - a plugin's model may have no schema
        return {}


def _of_schema(schema: Mapping[str, Any], models: Mapping[str, Any]) -> Any:
    """Return a value of a schema, which can refer to `models`. What a model requires of its own kind is empty."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _of_schema(models.get(name, {}), {other: each for other, each in models.items() if other != name})
    given = [*schema.get("examples", ()), *schema.get("enum", ())]
    if given:
        return given[0]
    if "properties" in schema:
        required = schema.get("required", schema["properties"])
        return {name: _of_schema(each, models) for name, each in schema["properties"].items() if name in required}
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if "anyOf" in schema:
        return _of_schema(next((each for each in schema["anyOf"] if "type" in each), schema["anyOf"][0]), models)
    kind = schema.get("type", "string" if schema else "")
    return {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "null": None}.get(kind, {})


def _fields(example: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each field of a form; each item of a list is a field."""
    for name, value in example.items():
        for each in value if isinstance(value, list) else [value]:
            yield name, each if isinstance(each, str) else json.dumps(each, default=_plain)


def _files(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each field of a form that is a file, and a media type that it may have."""
    for name, field in schema.get("properties", {}).items():
        for each in (field, field.get("items", {}), *field.get("anyOf", ())):
            if each.get("format") == "binary":
                yield name, each.get("x-media-types", ["text/plain"])[0]


def _multipart(fields: list[tuple[str, str]], files: Mapping[str, str]) -> str:
    """Return a form (RFC 7578); its lines end with CR LF, as those of a text area do when it is sent."""
    lines = []
    for name, value in fields:
        lines += [f"--{_BOUNDARY}", f'Content-Disposition: form-data; name="{name}"']
        if name in files:
            lines[-1] += f'; filename="{name}"\r\nContent-Type: {files[name]}'
        lines += ["", value]
    return "\r\n".join([*lines, f"--{_BOUNDARY}--", ""])


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)
