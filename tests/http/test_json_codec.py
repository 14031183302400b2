"""Decoding and encoding of JSON: numbers are exact, and bad input is always the client's mistake."""

from __future__ import annotations

import datetime
import enum
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from plughost.http._json.codec import MAX_DEPTH, MAX_EXPONENT, MalformedJSON, decode, encode

decimals = st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number.adjusted()) <= 300)

REFUSED = {
    "empty": (b"", "missing"),
    "white space": (b" \n", "missing"),
    "truncated": (b'{"a":1', "ends too early"),
    "trailing": (b"{} x", "trailing characters at line 1"),
    "second line": (b'{"a":1,\n "b":?}', "line 2, column 6"),
    "comma": (b"[1,]", "not valid JSON"),
    "leading zero": (b"01", "not valid JSON"),
    "control character": (b'"a\nb"', "not valid JSON"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "utf-16": ('{"a":1}'.encode("utf-16-le"), "not valid JSON"),
    "bad utf-8": (b'{"a":"\xff"}', "not valid UTF-8 at line 1, column 7"),
    "raw surrogate": (b'"\xed\xa0\x80"', "not valid UTF-8"),
    "high surrogate": (rb'{"a":"\ud800"}', "lone surrogate at line 1, column 7"),
    "high surrogate at the end": (rb'"\uD800"', "lone surrogate"),
    "low surrogate": (rb'["\udfff", 1]', "lone surrogate"),
    "two high surrogates": (rb'["\ud83d\ud83d", 1]', "lone surrogate"),
    "surrogate in a key": (rb'{"\ud800abcdefgh":1}', "lone surrogate"),
    "NaN": (b'{"a":NaN}', "not valid JSON"),
    "Infinity": (b"[-Infinity]", "not valid JSON"),
    "exponent": (b'{"a":1e999999999}', "out of range"),
    "zero with an exponent": (b"0e999999999", "out of range"),
    "negative exponent": (b"[1E-999999999]", "out of range"),
    "exponent beyond Decimal": (b"1e99999999999999999999", "out of range"),
    "long fraction": (b"0." + b"1" * 5000, "out of range"),
    "long integer": (b'{"a":[' + b"1" * 100_000 + b"]}", "too many digits"),
    "long negative integer": (b"-" + b"9" * 5000, "too many digits"),
    "long name": (b'{"a":{"' + b"n" * 1001 + b'" :1}}', "member name of more than 1000 bytes"),
    "long name of escapes": (rb'{"' + rb"\\\"" * 251 + rb'":1}', "member name of more than 1000 bytes"),
    "nested arrays": (b"[" * 101 + b"]" * 101, "nested deeper than 100"),
    "nested objects": (b'{"a":' * 101 + b"1" + b"}" * 101, "nested deeper than 100"),
    "nested beyond recursion": (b"[" * 100_000, "nested deeper than 100"),
}


@pytest.mark.parametrize(("raw", "reason"), REFUSED.values(), ids=REFUSED)
def test_bad_json_is_a_400_that_says_why(raw: bytes, reason: str) -> None:
    """Unsound JSON is refused with 400, and the description says what is wrong and where."""
    with pytest.raises(MalformedJSON) as caught:
        decode(raw)
    assert caught.value.status_code == 400
    assert reason in (caught.value.description or "")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"19.990", Decimal("19.990")),
        (b"0.1234567890123456789012345678901234567890", Decimal("0.1234567890123456789012345678901234567890")),
        (b"1e2", Decimal("1E+2")),
        (b'{"' + b"n" * 1000 + b'":1}', {"n" * 1000: 1}),
        (b'{"a":"' + b"n" * 1001 + rb'\":"}', {"a": "n" * 1001 + '":'}),
        (b"5", 5),
        (b"9223372036854775808", 2**63),
        (b"-340282366920938463463374607431768211456", -(2**128)),
        (f"1e{MAX_EXPONENT}".encode(), Decimal(f"1e{MAX_EXPONENT}")),
        (rb'"\ud83d\ude00\u0000"', "\U0001f600\0"),
        (rb'"\\ud800"', r"\ud800"),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b" [true, null] ", [True, None]),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
    ],
)
def test_values_are_decoded_exactly(raw: bytes, value: object) -> None:
    """Numbers keep every digit, strings every character, and unusual but valid JSON is accepted."""
    decoded = decode(raw)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("number", [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308])
def test_every_double_is_in_range(number: float) -> None:
    """The smallest and the largest double are accepted like any number, since clients compute with doubles."""
    assert float(decode(json.dumps(number).encode())) == number


def test_brackets_in_strings_do_not_nest() -> None:
    """Brackets after an escaped quote don't either; those after the string do."""
    text = '[\\"{' * 150
    assert decode(encode({text: [text]})) == {text: [text]}
    with pytest.raises(MalformedJSON) as refused:
        decode(b"[" + encode(text) + b", " + b"[" * 200)
    assert "nested deeper than 100" in str(refused.value.description)


def test_a_wide_text_is_not_a_deep_one() -> None:
    """Any number of small objects side by side is accepted."""
    assert len(decode(b"[" + b",".join([b"{}"] * 5000) + b"]")) == 5000
    deepest = b"[" * MAX_DEPTH + b"]" * (MAX_DEPTH - 1)
    assert len(decode(deepest + b",[]" * 100 + b"]")) == 101


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"


@dataclass(frozen=True)
class Point:
    """A frozen dataclass."""

    x: Decimal


class Size(msgspec.Struct):
    """A msgspec struct."""

    width: int


class Item(BaseModel):
    """A pydantic model with an alias."""

    model_config = ConfigDict(frozen=True)
    unit_price: Decimal = Field(alias="unitPrice")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("19.990"), "19.990"),
        (Decimal("1E+2"), "100"),
        (Decimal("-1.5E-7"), "-0.00000015"),
        (Decimal("1E+400"), "1E+400"),
        ({"sku": "5E-3", "price": Decimal("19.99")}, '{"sku":"5E-3","price":19.99}'),
        ({"sku": "NaN", "price": Decimal("2E+1")}, '{"sku":"NaN","price":20}'),
        ([Point(Decimal("3E+1"))], '[{"x":30}]'),
        (Item(unitPrice=Decimal("1.10")), '{"unitPrice":1.10}'),
        ([Item(unitPrice=Decimal("1E+1"))], '[{"unitPrice":10}]'),
        (Size(3), '{"width":3}'),
        ({"a": {1}, "b": frozenset({2})}, '{"a":[1],"b":[2]}'),
        (MappingProxyType({"a": Decimal("1E+1")}), '{"a":10}'),
        (datetime.datetime(2026, 11, 5, 8, 30), '"2026-11-05T08:30:00"'),
        (datetime.datetime(2026, 11, 5, tzinfo=datetime.UTC), '"2026-11-05T00:00:00Z"'),
        (datetime.date(2026, 11, 5), '"2026-11-05"'),
        (Colour.RED, '"red"'),
        (Path("a/b"), '"a/b"'),
        (2**70, str(2**70)),
    ],
)
def test_values_are_written_in_plain_json(value: object, text: str) -> None:
    """Each kind of value has one form; Decimals are numbers with all digits and no exponent."""
    assert encode(value) == text.encode()


@pytest.mark.parametrize("text", ["NaN", "sNaN", "-NaN", "Infinity", "-Infinity"])
def test_a_decimal_that_is_not_finite_is_refused(text: str) -> None:
    """It raises ValueError wherever it is in the value."""
    for value in (Decimal(text), [1, Decimal(text)], {"a": {"b": Decimal(text)}}):
        with pytest.raises(ValueError, match="finite"):
            encode(value)


@pytest.mark.parametrize("value", [object(), [json], (each for each in "ab")])
def test_what_json_cannot_hold_is_a_type_error(value: object) -> None:
    """A value without a form in JSON raises TypeError that names its type."""
    with pytest.raises(TypeError, match="JSON has no place for"):
        encode(value)


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda text: json.dumps(text).encode())))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    """No bytes raise anything but MalformedJSON, and every decoded value can be encoded again."""
    try:
        value = decode(raw)
    except MalformedJSON:
        return
    assert decode(encode(value)) == value


@settings(deadline=None)
@given(st.text(alphabet='{}[]",:0123456789.eE+-\\udDcC8aNnftrue \n', max_size=30))
def test_almost_json_is_decoded_or_refused(text: str) -> None:
    """Texts of JSON's own characters raise nothing but MalformedJSON either, and give no lone surrogate."""
    try:
        value = decode(text.encode())
    except MalformedJSON:
        return
    assert decode(encode(value)) == value


@settings(deadline=None)
@given(decimals)
def test_decimals_survive_the_round_trip(number: Decimal) -> None:
    """A Decimal is written exactly, without an exponent, as a number that any reader understands."""
    text = encode({"n": number})
    assert b"E" not in text
    assert Decimal(decode(text)["n"]) == number


def test_encoded_json_is_kept() -> None:
    """JSON from a database or another service is inserted unchanged among other values."""
    for beside in ("Tea", "1E+5", "NaN"):
        written = encode({"a": msgspec.Raw(b"19.90"), "b": beside})
        assert decode(written) == {"a": Decimal("19.90"), "b": beside}


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | decimals | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_values_survive_the_round_trip(value: Any) -> None:
    """An encoded value is decoded to the same value."""
    assert decode(encode(value)) == value
