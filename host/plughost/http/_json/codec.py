"""JSON to values and back: numbers are exact, and no client's input causes worse than a 400."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import falcon
import msgspec
import pydantic_core
from pydantic import BaseModel

MAX_DEPTH: Final = 100
"""How deep arrays and objects may be nested."""

MAX_EXPONENT: Final = 324
"""Largest exponent of a number's first digit, positive or negative: enough for each finite binary float (5e-324)."""

_MAX_NUMBER_LENGTH: Final = 1000

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SYNTAX_ERROR: Final = re.compile(r"^JSON is malformed: (?P<what>.*) \(byte (?P<byte>\d+)\)$")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # signed: one level down, one up
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_E, _N, _I = b"ENI"
_NEEDS_REWRITE: Final = re.compile(rb"\dE[+-]\d|(?:^|[\[:,])-?(?:s?NaN|Infinity)")


class MalformedJSON(falcon.HTTPBadRequest):
    """A body isn't JSON, or exceeds the limits of numbers or nesting (CONTRACT 2): 400."""

    def __init__(self, reason: str) -> None:
        """Take what is wrong, and where, as a sentence for API clients."""
        super().__init__(title="Bad Request", description=reason)


def decode(raw: bytes) -> Any:
    """Return the value of a JSON text: UTF-8 without a byte order mark (RFC 8259, section 8.1).

    Integers become `int`, other numbers `Decimal`, exactly. If a member is repeated, the last one counts.

    Raises:
        MalformedJSON: The text is empty or malformed, isn't UTF-8, has a lone surrogate or NaN, nests deeper than
            100 levels, or has a number with an exponent beyond 324, an integer of more than 4300 digits or
            another number of more than 1000 characters.
    """
    # A text with so few bytes or opening brackets can't be nested too deep.
    if len(raw) > MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_too_deep(raw):
        raise MalformedJSON(_TOO_DEEP)
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, ArithmeticError) as error:
        raise MalformedJSON(_reason(raw, error)) from error


def encode(value: object) -> bytes:
    """Return a value as JSON text.

    Decimals are written as numbers with all their digits; those up to the exponent 324 without an exponent. Dates and
    times are written as ISO 8601, binary data as base64. Pydantic models (by alias), dataclasses, msgspec structs,
    enumerations, sets, mappings and `msgspec.Raw`, which is JSON already, may appear anywhere. A binary float that
    isn't finite becomes null.

    Raises:
        ValueError: A Decimal is NaN or infinite, or a string has a lone surrogate.
        TypeError: JSON has no type for a value.
    """
    encoded = _ENCODER.encode(value)
    # msgspec writes `str(decimal)`, and `1E+2` or `NaN` are rare: searching for them beats visiting each value.
    # Single bytes first: searching for one takes a tenth of the time of searching for two.
    if (
        (_E in encoded and (b"E+" in encoded or b"E-" in encoded))
        or (_N in encoded and b"NaN" in encoded)
        or (_I in encoded and b"Infinity" in encoded)
    ) and _NEEDS_REWRITE.search(encoded):
        builtins = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_to_builtin)
        return _ENCODER.encode(_without_exponents(builtins))
    return encoded


def _number(text: str) -> Decimal:
    """Return a number that isn't an integer, or refuse it before anything computes with it or formats it."""
    number = Decimal(text)
    if len(text) > _MAX_NUMBER_LENGTH or not -MAX_EXPONENT <= number.adjusted() <= MAX_EXPONENT:
        raise MalformedJSON(_OUT_OF_RANGE)
    return number


def _to_builtin(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, msgspec.Raw):
        return _DECODER.decode(value)
    # Pydantic converts paths and, in later releases, URLs, addresses and masked secrets. Only strings are taken: in
    # containers, pydantic would convert Decimals to strings.
    text = pydantic_core.to_jsonable_python(value, fallback=lambda _: None)
    if isinstance(text, str):
        return text
    raise TypeError(f"JSON has no place for {type(value).__name__}.")


def _without_exponents(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_exponents(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_exponents(item) for item in value]
    if not isinstance(value, Decimal):
        return value
    if not value.is_finite():
        raise ValueError("NaN and infinite numbers have no place in JSON.")
    if "E" in str(value) and abs(value.adjusted()) <= MAX_EXPONENT:
        return msgspec.Raw(format(value, "f").encode())
    return value


def _is_too_deep(raw: bytes) -> bool:
    """Check the nesting before decoding: on Python 3.13 msgspec overflows the stacks of granian's threads."""
    outside_strings = b"".join(raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    steps = outside_strings.translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH


def _reason(raw: bytes, error: Exception) -> str:
    if isinstance(error, ArithmeticError):
        return _OUT_OF_RANGE
    if isinstance(error, msgspec.ValidationError):  # msgspec's error for an integer beyond Python's limit of digits
        return "The request body holds an integer with too many digits."
    if not raw.strip():
        return "The request body is missing; a JSON value is expected."
    try:
        raw.decode()
    except UnicodeDecodeError as invalid:
        return f"The request body is not valid UTF-8{_at_position(raw, invalid.start)}."
    return f"The request body is not valid JSON: {_describe_syntax_error(raw, str(error))}."


def _describe_syntax_error(raw: bytes, message: str) -> str:
    if raw.startswith(_BYTE_ORDER_MARK):
        return "it starts with a byte order mark"
    match = _SYNTAX_ERROR.match(message)
    surrogate = _LONE_SURROGATE.search(raw)
    if match is None:  # "Input data was truncated": msgspec looks ahead for the second half of a pair
        return f"a lone surrogate{_at_position(raw, surrogate.start())}" if surrogate else "it ends too early"
    what = "a lone surrogate" if "surrogate" in match["what"] else match["what"]
    return what + _at_position(raw, int(match["byte"]))


def _at_position(raw: bytes, byte: int) -> str:
    before = raw[:byte]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    return f" at line {line}, column {column}"


_TOO_DEEP: Final = f"The request body is nested deeper than {MAX_DEPTH} levels."
_OUT_OF_RANGE: Final = "The request body holds a number that is out of range."
_DECODER: Final = msgspec.json.Decoder(float_hook=_number)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_to_builtin)
