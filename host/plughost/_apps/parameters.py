"""Declared parameters: compiled when a route is mounted, then applied to each request.

A parameter's JSON Schema is enforced completely: mounting fails on keywords that are unknown here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes
from uuid import UUID

from pydantic_core import PydanticCustomError

from plughost.http._forms import MAX_DIGITS, is_integer, is_number
from plughost.http._json.fields import NOT_BLANK, NOT_NULL, Text, refusal
from plughost.http._paging import text_of

if TYPE_CHECKING:
    from plughost._api.declarations import Parameter
    from plughost.http._request import Request

Convert = Callable[[str], Any]
Schema = Mapping[str, Any]
Rule = tuple[Callable[[Any, Any], bool], str]
Types = Mapping[str, tuple[Convert, Mapping[str, Rule]]]

_BEYOND_ALL_BOUNDS: Final = Decimal(10) ** MAX_DIGITS
_require_text: Final = Text().checker()

# Keyword to its test of a value, and the message if the test fails (CONTRACT 2).
_COMMON_RULES: Final[Mapping[str, Rule]] = {"enum": (lambda value, choices: value in choices, "must be one of {}")}
_NUMBER_RULES: Final[Mapping[str, Rule]] = {
    **_COMMON_RULES,
    "minimum": (operator.ge, "must be greater than or equal to {}"),
    "exclusiveMinimum": (operator.gt, "must be greater than {}"),
    "maximum": (operator.le, "must be less than or equal to {}"),
    "exclusiveMaximum": (operator.lt, "must be less than {}"),
}
_STRING_RULES: Final[Mapping[str, Rule]] = {
    **_COMMON_RULES,
    "minLength": (lambda value, minimum: len(value) >= minimum, "size must be at least {}"),
    "maxLength": (lambda value, maximum: len(value) <= maximum, "size must be between 0 and {}"),
    "pattern": (lambda value, pattern: re.search(pattern, value) is not None, "must match {}"),
}
_UNCHECKED_KEYWORDS: Final = frozenset({"type", "default", "examples", "title", "description", "deprecated"})
FORMATS: Final[Mapping[str, tuple[str, Convert, str]]] = {
    "date": (r"\d{4}-\d\d-\d\d", date.fromisoformat, "2026-11-22"),
    "date-time": (
        r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",  # Python 3.14 reads the hour 24, too
        datetime.fromisoformat,
        "2026-11-22T17:30:00Z",
    ),
    "uuid": (r"[\dA-F]{8}(-[\dA-F]{4}){3}-[\dA-F]{12}", UUID, "8f14e45f-ceea-4672-a8b1-0c2d3f4e5a6b"),
}
"""Format of a string (RFC 3339, RFC 9562) to its pattern, its type and an example."""


class ParameterReader:
    """Reads one declared parameter from requests."""

    def __init__(self, declared: Parameter) -> None:
        """Compile a declaration. Raise `ValueError` if its schema can't be enforced, or refuses its own default."""
        schema = declared.schema
        name = declared.name
        self.declared = declared
        # The responder's, such as `if_match` for `If-Match`.
        self.argument = re.sub(r"\W", "_", name.lower() if declared.place == "header" else name)
        key = name.upper().replace("-", "_")
        self._key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
        self._is_array = schema.get("type") == "array"
        self._convert = _item_converter(schema) if self._is_array else _scalar_converter(schema, _TYPES)
        is_nonblank = declared.required and schema.get("type", "string") == "string" and schema.get("minLength") != 0
        self._missing_message = NOT_BLANK if is_nonblank else NOT_NULL
        if is_nonblank:
            convert = self._convert
            self._convert = lambda text: convert(_require_text(text))
        for example in schema.get("examples", ()):
            self._read_example(example)
        self._default = self._read_example(schema["default"]) if "default" in schema else () if self._is_array else None

    @property
    def accepts_any(self) -> bool:
        """Whether every request has a valid value: a path segment that may be any string."""
        return self.declared.place == "path" and self._convert is _to_string and self.argument == self.declared.name

    def read(self, req: Request, params: Mapping[str, Any]) -> Any:
        """Return a request's value of the parameter, or the schema's default. Raise a `refusal` of an invalid value."""
        place, name = self.declared.place, self.declared.name
        if place == "path":
            found = params[name]
            if not isinstance(found, str):  # converted by Falcon
                if isinstance(found, int | float):
                    self._convert(text_of(found))  # checks its bounds
                return found
        else:
            found = req.params.get(name) if place == "query" else req.env.get(self._key)
        texts: Sequence[str] = found if isinstance(found, list) else () if found is None else (found,)
        if place == "query" and any("\ufffd" in text for text in texts):
            _require_utf8(req.query_string)
        if self._is_array and place != "query":
            texts = [each.strip() for text in texts for each in text.split(",")]
        if self.declared.allow_empty:
            texts = [each for each in texts if each]
        if texts:
            return tuple(map(self._convert, texts)) if self._is_array else self._convert(texts[0])
        if self.declared.required:
            raise refusal(self._missing_message)
        return self._default

    def _read_example(self, value: Any) -> Any:
        try:
            if self._is_array:
                return tuple(self._convert(text_of(each)) for each in value)
            return self._convert(text_of(value))
        except PydanticCustomError as error:
            raise ValueError(f"{value!r}, which its schema names, {error.message()}") from None


def _require_utf8(query: str) -> None:
    """Refuse bytes that Falcon decodes as U+FFFD, and which would otherwise match a value that contains it."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise refusal("must be UTF-8") from None


def _item_converter(schema: Schema) -> Convert:
    """Return a converter of an array's items. Its error messages name the item."""
    unknown = schema.keys() - _UNCHECKED_KEYWORDS - {"items"}
    if unknown or not isinstance(schema.get("items"), Mapping):
        raise ValueError(f"an array has items, and {', '.join(sorted(unknown)) or 'nothing else'} is not enforced")
    convert = _scalar_converter(schema["items"], _ITEM_TYPES)

    def convert_item(text: str) -> Any:
        try:
            return convert(text)
        except PydanticCustomError as error:
            raise refusal(f"{text[:50]!r} {error.message()}") from None

    return convert_item


def _scalar_converter(schema: Schema, types: Types) -> Convert:
    """Return a converter from text to a schema's value, which also checks the value. All keywords must be known."""
    kind = schema.get("type", "string")
    if kind == "string" and "format" in schema:
        other_keywords = {keyword: schema[keyword] for keyword in schema if keyword != "format"}
        return _format_converter(schema["format"], _scalar_converter(other_keywords, types))
    if kind not in types:
        raise ValueError(f"the type {kind!r} is none of {', '.join(types)}, array")
    convert_text, rules = types[kind]
    unknown = schema.keys() - rules.keys() - _UNCHECKED_KEYWORDS
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not enforced for the type {kind}")
    checks = [
        (holds, _bound(schema[name]), _message(name, text, schema))
        for name, (holds, text) in rules.items()
        if name in schema
    ]
    if not checks:
        return convert_text

    def convert(text: str) -> Any:
        value = convert_text(text)
        for holds, bound, message in checks:
            if not holds(value, bound):
                raise refusal(message)
        return value

    return convert


def _message(keyword: str, text: str, schema: Schema) -> str:
    if keyword == "pattern" and "description" in schema:
        return f"must be {schema['description']}"
    return text.format(_format(schema[keyword]))


def _format_converter(name: str, check: Convert) -> Convert:
    """Return a converter from text to the type of a format, after the check of all other keywords."""
    if name not in FORMATS:
        raise ValueError(f"the format {name!r} is none of {', '.join(FORMATS)}")
    pattern, parse, example = FORMATS[name]
    has_form = re.compile(pattern, re.ASCII | re.IGNORECASE).fullmatch

    def convert(text: str) -> Any:
        check(text)
        with suppress(ValueError):  # of this form, but no such day or hour
            if has_form(text):
                return parse(text.upper())
        raise refusal(f"must be a {name}, such as {example}")

    return convert


def _to_integer(text: str) -> int:
    if not is_integer(text):
        raise refusal("must be an integer")
    if len(text) <= MAX_DIGITS:
        return int(text)
    return int(max(-_BEYOND_ALL_BOUNDS, min(Decimal(text), _BEYOND_ALL_BOUNDS)))


def _to_number(text: str) -> Decimal:
    if not is_number(text):
        raise refusal("must be a number")
    return Decimal(text)


def _to_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise refusal("must be true or false")
    return text == "true"


def _to_string(text: str) -> str:
    if "\0" in text:  # databases can't store it
        raise refusal("must not contain NUL")
    return text


_TYPES: Final[Types] = {
    "string": (_to_string, _STRING_RULES),
    "integer": (_to_integer, _NUMBER_RULES),
    "number": (_to_number, _NUMBER_RULES),
    "boolean": (_to_boolean, _COMMON_RULES),
}
# Items of arrays may contain NUL: they filter the resource's values, and match none.
_ITEM_TYPES: Final[Types] = {**_TYPES, "string": (str, _STRING_RULES)}


def _bound(value: Any) -> Any:
    """Return a keyword's value in a form that the rules can compare with."""
    if isinstance(value, str):  # a pattern; in ECMA's, which JSON Schema uses, $ matches only at the very end
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", value))
    if isinstance(value, (list, tuple)):
        return [each if isinstance(each, str) else _bound(each) for each in value]
    return Decimal(repr(value)) if isinstance(value, float) else value


def _format(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
