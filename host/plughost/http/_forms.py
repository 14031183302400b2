"""Forms, URL-encoded or multipart with files, validated by a model (WHATWG URL 5, RFC 7578)."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

import falcon
from falcon.media.multipart import MultipartFormHandler, MultipartParseOptions

from plughost.http._json.fields import NOT_NULL, Rule, refusal
from plughost.http._json.validation import ModelT, validate

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_MEMORY_LIMIT: Final = 512 * 1024  # bytes of a file that are kept in memory
_MAX_FIELDS: Final = 1000
_MAX_PART_HEAD: Final = 1024  # bytes; Falcon parses a part's header in quadratic time
_MAX_TEXT: Final = 1024 * 1024  # bytes of all fields that aren't files
_BLOCK_SIZE: Final = 64 * 1024
MAX_DIGITS: Final = 400  # of an integer; int() refuses too many
is_integer: Final = re.compile(r"-?[0-9]+").fullmatch
is_number: Final = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?").fullmatch
_BOOLEANS: Final = {"true": True, "on": True, "false": False}
_MAX_SIZE_KEYWORD: Final = "x-max-size"
_MEDIA_TYPES_KEYWORD: Final = "x-media-types"


class Upload:
    """An uploaded file of a form. It is closed and deleted once nothing refers to it.

    Attributes:
        filename: The name that the client gives; never a path to write to.
        content_type: The media type that the client gives.
        file: The content, in memory or in an unnamed temporary file, positioned at its start.
        size: The size in bytes.
    """

    def __init__(self, filename: str, content_type: str) -> None:
        self.filename = filename
        self.content_type = content_type
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(_MEMORY_LIMIT)  # noqa: SIM115 - see `__del__`
        self.size = 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the content to a path."""
        self.file.seek(0)
        with Path(path).open("wb") as target:
            shutil.copyfileobj(self.file, target)

    def __del__(self) -> None:
        self.file.close()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let models have fields of this type, with the rule `File` or without."""
        return File().__get_pydantic_core_schema__(source, handler)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe a file."""
        return File().json_schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class File(Rule):
    """The rule of a form's file, an `Upload`.

    Attributes:
        max_size: Maximum bytes; bytes beyond aren't stored. None for the limit of the whole body.
        media_types: The media types that the client may give. Empty for any.
    """

    max_size: int | None = None
    media_types: tuple[str, ...] = ()

    def _check(self, value: Any) -> Upload:
        if not isinstance(value, Upload):
            raise refusal(NOT_NULL if value is None else "must be a file")
        if self.max_size is not None and value.size > self.max_size:
            raise refusal(f"must have at most {self.max_size} bytes")
        media_type = value.content_type.partition(";")[0].strip().lower()
        if self.media_types and media_type not in map(str.lower, self.media_types):
            raise refusal(f"must be one of {', '.join(self.media_types)}")
        return value

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "format": "binary"}
        if self.max_size is not None:
            schema[_MAX_SIZE_KEYWORD] = self.max_size
        if self.media_types:
            schema[_MEDIA_TYPES_KEYWORD] = list(self.media_types)
        return schema


def read_form(req: falcon.Request, model: type[ModelT]) -> ModelT:
    """Return the model made from a form, URL-encoded or `multipart/form-data`.

    Texts are converted to their field's type: an integer, a number, a boolean (`true`, `on`, `false`), or an item of a
    list. An empty input is absent, unless its field is a text; dates, UUIDs and choices are none. Files are kept only
    if the model has a field for them, of the type `Upload` with the rule `File`; beyond 512 KiB they go to an unnamed
    temporary file.

    Raises:
        Invalid: The form breaks the model's rules.
        falcon.HTTPUnsupportedMediaType: The body is not a form.
        falcon.HTTPContentTooLarge: The form's texts have more than 1 MiB in all.
        falcon.HTTPBadRequest: The form is malformed, has more than 1,000 fields, or one whose headers exceed 1 KiB.
    """
    kind = (req.content_type or "").partition(";")[0].strip().lower()
    fields = _fields_of(model)
    try:
        if kind == falcon.MEDIA_URLENCODED:
            values = _values(_read_url_encoded(req), fields)
        elif kind == falcon.MEDIA_MULTIPART:
            values = _values(_read_multipart(req, fields), fields)
        else:
            raise falcon.HTTPUnsupportedMediaType(
                description="This resource reads multipart/form-data and application/x-www-form-urlencoded.",
                headers={"Accept": f"{falcon.MEDIA_MULTIPART}, {falcon.MEDIA_URLENCODED}"},
            )
    except (ValueError, LookupError) as error:  # text that isn't UTF-8, or of an unknown encoding
        raise falcon.HTTPBadRequest(description="The form is malformed, or isn't UTF-8.") from error
    return validate(model, values)


def _read_url_encoded(req: falcon.Request) -> Iterable[tuple[str, str | Upload]]:
    if (req.content_length or 0) > _MAX_TEXT:
        raise _too_large()
    text = req.stream.read().decode("ascii")
    return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)


def _read_multipart(req: falcon.Request, fields: Mapping[str, _Field]) -> Iterable[tuple[str, str | Upload]]:
    options = MultipartParseOptions()
    options.max_body_part_count = _MAX_FIELDS
    options.max_body_part_headers_size = _MAX_PART_HEAD
    remaining = _MAX_TEXT
    for part in MultipartFormHandler(options).deserialize(req.stream, req.content_type, req.content_length):
        name = part.name or ""
        field = fields.get(name)
        if part.filename is None:
            data = part.stream.read(remaining + 1)
            remaining -= len(data)
            if remaining < 0:
                raise _too_large()
            yield name, data.decode()
        elif field is not None and field.kind == "file":
            upload = _store(part.stream, Upload(part.filename, part.content_type), field.max_size)
            if upload.filename or upload.size:  # browsers send an empty one if no file was chosen
                yield name, upload


def _store(stream: Any, upload: Upload, max_size: int | None) -> Upload:
    """Store an uploaded file, without the blocks beyond its maximum size."""
    while block := stream.read(_BLOCK_SIZE):
        upload.size += len(block)
        if max_size is None or upload.size <= max_size:
            upload.file.write(block)
    upload.file.seek(0)
    return upload


def _too_large() -> falcon.HTTPContentTooLarge:
    return falcon.HTTPContentTooLarge(description=f"The texts of the form have more than {_MAX_TEXT} bytes.")


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a model. Its kind is a type of JSON Schema, `file`, or `value` for a string that can't be empty."""

    kind: str
    is_array: bool
    max_size: int | None


_fields_by_model: Final[WeakKeyDictionary[type[BaseModel], dict[str, _Field]]] = WeakKeyDictionary()


def _fields_of(model: type[BaseModel]) -> dict[str, _Field]:
    fields = _fields_by_model.get(model)
    if fields is None:
        schema = model.model_json_schema()
        definitions = schema.get("$defs", {})
        fields = {name: _field(each, definitions) for name, each in schema["properties"].items()}
        _fields_by_model[model] = fields
    return fields


def _field(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Field:
    for branch in schema.get("anyOf", ()):
        if branch.get("type") != "null":
            return _field(branch, definitions)
    if "$ref" in schema:
        return _field(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if schema.get("type") == "array":
        item = _field(schema.get("items", {}), definitions)
        return _Field(item.kind, True, item.max_size)
    kind = "file" if schema.get("format") == "binary" else schema.get("type", "string")
    choices = schema.get("enum", [schema.get("const", "")])
    if kind == "string" and (schema.get("format", "password") != "password" or "" not in choices):
        kind = "value"
    return _Field(kind, False, schema.get(_MAX_SIZE_KEYWORD))


def _values(inputs: Iterable[tuple[str, str | Upload]], fields: Mapping[str, _Field]) -> dict[str, Any]:
    """Return a form's values as JSON types. If a field comes twice and is no list, the first one counts."""
    values: dict[str, Any] = {}
    for name, text in inputs:
        field = fields.get(name)
        if field is None or (text == "" and field.kind != "string"):
            continue
        value = _convert(text, field.kind) if isinstance(text, str) else text
        if field.is_array:
            values.setdefault(name, []).append(value)
        else:
            values.setdefault(name, value)
    return values


def _convert(text: str, kind: str) -> Any:
    """Convert a text to its field's type. If it can't be converted, it stays a text, which the field refuses."""
    if kind == "integer":
        return int(text) if is_integer(text) and len(text) <= MAX_DIGITS else text
    if kind == "number":
        return Decimal(text) if is_number(text) else text
    return _BOOLEANS.get(text, text) if kind == "boolean" else text
