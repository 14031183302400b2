"""Declared parameters, compiled when a route is mounted, then applied to each request.

What a parameter's JSON Schema says is what is enforced: a keyword that isn't known here is refused at mount.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import PydanticCustomError

from plughost.http._forms import is_number
from plughost.http._json.fields import NOT_BLANK, NOT_NULL, Text
from plughost.http._paging import text_of

if TYPE_CHECKING:
    from plughost._api.declarations import Parameter
    from plughost.http._request import Request

Convert = Callable[[str], Any]
Schema = Mapping[str, Any]
Rule = tuple[Callable[[Any, Any], bool], str]
Types = Mapping[str, tuple[Convert, Mapping[str, Rule]]]

_MOST_DIGITS: Final = 400
_BEYOND: Final = 10**_MOST_DIGITS
_integer = re.compile(r"-?[0-9]+").fullmatch
_filled = Text().checker()

# Keyword to whether a value keeps it, and what is said where it doesn't (CONTRACT 2).
_OF_ALL: Final[Mapping[str, Rule]] = {"enum": (lambda value, choices: value in choices, "must be one of {}")}
_OF_NUMBERS: Final[Mapping[str, Rule]] = {
    **_OF_ALL,
    "minimum": (operator.ge, "must be greater than or equal to {}"),
    "exclusiveMinimum": (operator.gt, "must be greater than {}"),
    "maximum": (operator.le, "must be less than or equal to {}"),
    "exclusiveMaximum": (operator.lt, "must be less than {}"),
}
_OF_STRINGS: Final[Mapping[str, Rule]] = {
    **_OF_ALL,
    "minLength": (lambda value, least: len(value) >= least, "size must be at least {}"),
    "maxLength": (lambda value, most: len(value) <= most, "size must be between 0 and {}"),
    "pattern": (lambda value, pattern: re.search(pattern, value) is not None, "must match {}"),
}
_DESCRIBING: Final = frozenset({"type", "format", "default", "examples", "title", "description", "deprecated"})


class RefusedError(ValueError):
    """A value that breaks its parameter's schema. The argument is what is said of it."""


class Reader:
    """Reads one declared parameter of requests.

    Attributes:
        declared: The declaration.
        argument: What a responder calls it: `If-Match` is `if_match`.
    """

    def __init__(self, declared: Parameter) -> None:
        """Compile a declaration.

        Raises:
            ValueError: Its schema says what can't be enforced, or its default or an example breaks it.
        """
        schema = declared.schema
        self.declared = declared
        self.argument = re.sub(r"\W", "_", declared.name.lower() if declared.place == "header" else declared.name)
        self._key = _environ_key(declared.name)
        self._is_array = schema.get("type") == "array"
        self._convert = _items(schema) if self._is_array else _scalar(schema, _TYPES)
        is_filled = declared.required and schema.get("type", "string") == "string" and schema.get("minLength") != 0
        self._missing = NOT_BLANK if is_filled else NOT_NULL
        if is_filled:
            self._convert = partial(_convert_filled, self._convert)
        for example in schema.get("examples", ()):
            self._of_json(example)
        self._default = self._of_json(schema["default"]) if "default" in schema else () if self._is_array else None

    @property
    def takes_all(self) -> bool:
        """Whether any request has a value that is right as it stands: a segment of the path that is any string."""
        return self.declared.place == "path" and self._convert is _to_string and self.argument == self.declared.name

    def read(self, req: Request, params: Mapping[str, Any]) -> Any:
        """Return the value that a request has for the parameter. The schema's default where it has none.

        Raises:
            RefusedError: It is missing, or breaks the schema.
        """
        place, name = self.declared.place, self.declared.name
        if place == "path":
            found = params[name]
            if not isinstance(found, str):  # a converter of Falcon's has made it
                return found
        else:
            found = req.params.get(name) if place == "query" else req.env.get(self._key)
        texts: Sequence[str] = found if isinstance(found, list) else () if found is None else (found,)
        if self._is_array and place != "query":
            texts = [each.strip() for text in texts for each in text.split(",")]
        if self.declared.allow_empty:
            texts = [each for each in texts if each]
        if texts:
            return tuple(map(self._convert, texts)) if self._is_array else self._convert(texts[0])
        if self.declared.required:
            raise RefusedError(self._missing)
        return self._default

    def _of_json(self, value: Any) -> Any:
        try:
            if self._is_array:
                return tuple(self._convert(text_of(each)) for each in value)
            return self._convert(text_of(value))
        except RefusedError as refused:
            raise ValueError(f"{value!r}, which its schema names, {refused}") from None


def _environ_key(name: str) -> str:
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def _items(schema: Schema) -> Convert:
    """Return what converts an item of an array. What is said of one names it."""
    unknown = schema.keys() - _DESCRIBING - {"items"}
    if unknown or not isinstance(schema.get("items"), Mapping):
        raise ValueError(f"an array has items, and {', '.join(sorted(unknown)) or 'nothing else'} is not enforced")
    convert = _scalar(schema["items"], _OF_ITEMS)

    def convert_item(text: str) -> Any:
        try:
            return convert(text)
        except RefusedError as refused:
            raise RefusedError(f"{text[:50]!r} {refused}") from None

    return convert_item


def _scalar(schema: Schema, types: Types) -> Convert:
    """Return what converts a text to the value of a schema, and refuses what breaks it.

    Raises:
        ValueError: The schema has a type or a keyword that isn't enforced.
    """
    kind = schema.get("type", "string")
    if kind not in types:
        raise ValueError(f"the type {kind!r} is none of {', '.join(types)}, array")
    of_text, rules = types[kind]
    unknown = schema.keys() - rules.keys() - _DESCRIBING
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not enforced for the type {kind}")
    checks = [
        (holds, _bound(schema[name]), _said(schema, name, text))
        for name, (holds, text) in rules.items()
        if name in schema
    ]
    if not checks:
        return of_text

    def convert(text: str) -> Any:
        value = of_text(text)
        for holds, bound, otherwise in checks:
            if not holds(value, bound):
                raise RefusedError(otherwise)
        return value

    return convert


def _said(schema: Schema, name: str, text: str) -> str:
    if name == "pattern" and "description" in schema:
        return f"must be {schema['description']}"
    return text.format(_shown(schema[name]))


def _convert_filled(convert: Convert, text: str) -> Any:
    """Convert the text of a string that must be there. Blank counts as missing."""
    try:
        return convert(_filled(text))
    except PydanticCustomError as refused:
        raise RefusedError(str(refused)) from None


def _to_integer(text: str) -> int:
    if not _integer(text):
        raise RefusedError("must be an integer")
    digits = text.lstrip("-0") or "0"  # Python counts zeros in front among the digits that it reads at most
    number = int(digits) if len(digits) <= _MOST_DIGITS else _BEYOND  # as good as any other beyond all bounds
    return -number if text.startswith("-") else number


def _to_number(text: str) -> Decimal:
    if not is_number(text):
        raise RefusedError("must be a number")
    return Decimal(text)


def _to_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise RefusedError("must be true or false")
    return text == "true"


def _to_string(text: str) -> str:
    if "\0" in text:  # no database keeps it
        raise RefusedError("must not contain NUL")
    return text


_TYPES: Final[Types] = {
    "string": (_to_string, _OF_STRINGS),
    "integer": (_to_integer, _OF_NUMBERS),
    "number": (_to_number, _OF_NUMBERS),
    "boolean": (_to_boolean, _OF_ALL),
}
# Whether an item of an array may be NUL is for the resource to say, as which values it has: a filter matches none.
_OF_ITEMS: Final[Types] = {**_TYPES, "string": (str, _OF_STRINGS)}


def _bound(value: Any) -> Any:
    """Return what a keyword has, in the form that values are compared with."""
    if isinstance(value, str):  # a pattern: in ECMA's, as in JSON Schema, $ is the very end
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", value))
    return [_exact(each) for each in value] if isinstance(value, (list, tuple)) else _exact(value)


def _exact(value: Any) -> Any:
    return Decimal(repr(value)) if isinstance(value, float) else value


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
