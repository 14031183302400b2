"""The field rules: each text of the contract, the valid values, and the equivalent JSON Schema."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from plughost.http import Invalid, Violation
from plughost.http._json.codec import decode
from plughost.http._json.fields import Boolean, Choice, Integer, Number, Text, absent
from plughost.http._json.validation import validate

MAX_STOCK = 2**63 - 1
DIGITS = "numeric value out of bounds (11 digits.4 digits expected)"


class Name(BaseModel):
    """A required string that may not be blank."""

    field: Annotated[str, Text(max_length=255)]


class Content(BaseModel):
    """A required string that may be blank."""

    field: Annotated[str, Text(max_length=500, blank=True)]


class Stock(BaseModel):
    """A required integer."""

    field: Annotated[int, Integer(minimum=0, maximum=MAX_STOCK)]


class Price(BaseModel):
    """A required exact number."""

    field: Annotated[Decimal, Number(minimum=0, integer_digits=11, fraction_digits=4)]


class Height(BaseModel):
    """A number between two bounds, the lower one excluded."""

    field: Annotated[Decimal, Number(exclusive_minimum=0, maximum=300)]


class Level(BaseModel):
    """One of a few strings."""

    field: Annotated[str, Choice("LOW", "HIGH {x}")]


class Flag(BaseModel):
    """A boolean."""

    field: Annotated[bool, Boolean()]


class Change(BaseModel):
    """A partial update."""

    name: Annotated[str | None, Text(max_length=10)] = absent()
    height: Annotated[Decimal | None, Number(exclusive_minimum=0, maximum=300)] = absent()


@pytest.mark.parametrize(
    ("model", "json", "text"),
    [
        (Name, None, "must not be blank"),
        (Name, "null", "must not be blank"),
        (Name, '""', "must not be blank"),
        (Name, r'" \t\u0085\u00a0\u2028\u3000"', "must not be blank"),
        (Name, "5", "must be a string"),
        (Name, "true", "must be a string"),
        (Name, '["a"]', "must be a string"),
        (Name, f'"{"x" * 256}"', "size must be between 0 and 255"),
        (Name, r'"a\u0000"', "must not contain NUL"),
        (Content, None, "must not be null"),
        (Content, "null", "must not be null"),
        (Content, "{}", "must be a string"),
        (Content, f'"{"x" * 501}"', "size must be between 0 and 500"),
        (Content, r'"\u0000"', "must not contain NUL"),
        (Stock, None, "must not be null"),
        (Stock, "null", "must not be null"),
        (Stock, "-1", "must be greater than or equal to 0"),
        (Stock, "-1.0", "must be greater than or equal to 0"),
        (Stock, str(MAX_STOCK + 1), f"must be less than or equal to {MAX_STOCK}"),
        (Stock, "1e300", f"must be less than or equal to {MAX_STOCK}"),
        (Stock, "5.5", "must be an integer"),
        (Stock, "1e-300", "must be an integer"),
        (Stock, '"5"', "must be an integer"),
        (Stock, "true", "must be an integer"),
        (Stock, "[]", "must be an integer"),
        (Price, None, "must not be null"),
        (Price, "null", "must not be null"),
        (Price, "-0.01", "must be greater than or equal to 0"),
        (Price, '"19.99"', "must be a number"),
        (Price, "true", "must be a number"),
        (Price, "1.23456", DIGITS),
        (Price, "100000000000", DIGITS),
        (Price, "99999999999.99999", DIGITS),
        (Price, "1e11", DIGITS),
        (Price, "1e-5", DIGITS),
        (Price, "1e300", DIGITS),
        (Price, "9" * 4000, DIGITS),
        (Height, "0", "must be greater than 0"),
        (Height, "-0.0", "must be greater than 0"),
        (Height, "300.1", "must be less than or equal to 300"),
        (Level, "null", "must not be null"),
        (Level, None, "must not be null"),
        (Level, "5", "must be a string"),
        (Level, '"low"', "must be one of LOW, HIGH {x}"),
        (Flag, "null", "must not be null"),
        (Flag, None, "must not be null"),
        (Flag, "1", "must be a boolean"),
        (Flag, '"true"', "must be a boolean"),
    ],
)
def test_a_violation_has_the_contracts_words(model: type[BaseModel], json: str | None, text: str) -> None:
    """Each broken rule has one violation with the text of CONTRACT 2; None stands for missing."""
    body = "{}" if json is None else f'{{"field":{json}}}'
    with pytest.raises(Invalid) as caught:
        validate(model, decode(body.encode()))
    assert caught.value.violations == (Violation("field", text),)


@pytest.mark.parametrize(
    ("model", "json", "value"),
    [
        (Name, '" a "', " a "),
        (Name, f'"{"😀" * 255}"', "😀" * 255),
        (Name, r'"\u001c"', "\x1c"),
        (Content, '""', ""),
        (Content, '" "', " "),
        (Stock, "5.0", 5),
        (Stock, "5e2", 500),
        (Stock, "-0.0", 0),
        (Stock, str(MAX_STOCK), MAX_STOCK),
        (Stock, f"{MAX_STOCK}.0", MAX_STOCK),
        (Flag, "false", False),
        (Level, '"HIGH {x}"', "HIGH {x}"),
        (Height, "300", Decimal(300)),
        (Height, "1e-300", Decimal("1e-300")),
    ],
)
def test_a_good_value_is_kept(model: type[BaseModel], json: str, value: object) -> None:
    """A valid value has its Python type, and strings are exactly as sent."""
    kept = getattr(validate(model, decode(f'{{"field":{json}}}'.encode())), "field")  # noqa: B009 - any model
    assert kept == value
    assert type(kept) is type(value)


@pytest.mark.parametrize(
    ("json", "written"),
    [
        ("19.99", "19.99"),
        ("5", "5"),
        ("5.00", "5"),
        ("10", "10"),
        ("10.0", "10"),
        ("1.10", "1.1"),
        ("1.50000", "1.5"),
        ("1e2", "100"),
        ("1E-4", "0.0001"),
        ("99999999999.9999", "99999999999.9999"),
        ("99999999999.99990", "99999999999.9999"),
        ("0e10", "0"),
        ("0.0000000000", "0"),
        ("-0.00", "0"),
    ],
)
def test_a_price_is_exact_and_plain(json: str, written: str) -> None:
    """A price keeps its value to the last digit, and loses the exponent and zeros at its end."""
    assert str(validate(Price, decode(f'{{"field":{json}}}'.encode())).field) == written


@settings(deadline=None)
@given(st.decimals(min_value=0, max_value=Decimal("99999999999.9999"), places=4), st.integers(0, 20))
def test_every_price_within_bounds_is_exact(price: Decimal, zeros: int) -> None:
    """Any number with up to 11 and 4 digits keeps its exact value, however many zeros follow."""
    assert validate(Price, decode(f'{{"field":{price}{"0" * zeros}}}'.encode())).field == price


@settings(deadline=None)
@given(st.text(max_size=300))
def test_the_pattern_of_a_text_matches_its_rule(text: str) -> None:
    """The JSON Schema of a text accepts exactly the strings that the rule accepts."""
    schema = Name.model_json_schema()["properties"]["field"]
    described = (
        re.search(schema["pattern"], text) is not None and schema["minLength"] <= len(text) <= schema["maxLength"]
    )
    try:
        validate(Name, {"field": text})
        accepted = True
    except Invalid:
        accepted = False
    assert accepted == described


def test_a_left_out_field_differs_from_null() -> None:
    """A partial update knows which fields were sent, leaves out the others, and refuses null."""
    assert validate(Change, {}).model_fields_set == set()
    sent = validate(Change, {"height": Decimal("1.8"), "unknown": 1})
    assert (sent.model_fields_set, sent.name) == ({"height"}, None)
    with pytest.raises(Invalid) as caught:
        validate(Change, {"name": None, "height": None})
    assert caught.value.violations == (Violation("name", "must not be blank"), Violation("height", "must not be null"))


@pytest.mark.parametrize(
    ("model", "bounds"),
    [
        (Stock, {"type": "integer", "minimum": 0, "maximum": MAX_STOCK}),
        (Price, {"type": "number", "minimum": 0, "exclusiveMaximum": 10**11, "x-fraction-digits": 4}),
        (Height, {"type": "number", "exclusiveMinimum": 0, "maximum": 300}),
        (Level, {"type": "string", "enum": ["LOW", "HIGH {x}"]}),
        (Flag, {"type": "boolean"}),
        (Content, {"type": "string", "maxLength": 500, "pattern": r"^[^\u0000]*$"}),
    ],
)
def test_the_api_description_shows_the_bounds(model: type[BaseModel], bounds: dict[str, Any]) -> None:
    """The JSON Schema of a field has the bounds of its rule, in both modes, and the field is required."""
    for schema in (model.model_json_schema(), model.model_json_schema(mode="serialization")):
        assert schema["properties"]["field"] == {"title": "Field", **bounds}
        assert schema["required"] == ["field"]


def test_a_left_out_field_is_described_as_optional() -> None:
    """A field that may be left out isn't required, has no null among its types and no default."""
    schema = Change.model_json_schema()
    assert "required" not in schema
    assert schema["properties"]["height"] == {
        "title": "Height",
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 300,
    }


def test_a_field_may_be_described_further() -> None:
    """Pydantic's Field adds its description and examples to the schema of a rule."""

    class Described(BaseModel):
        stock: Annotated[int, Integer(minimum=0)] = Field(description="How many.", examples=[3])

    stock = Described.model_json_schema()["properties"]["stock"]
    assert (stock["description"], stock["examples"], stock["minimum"]) == ("How many.", [3], 0)


@pytest.mark.parametrize(
    "value", [1e-9, float("nan"), float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")]
)
def test_numbers_from_code_are_checked_as_well(value: object) -> None:
    """Binary floats and special Decimals, which JSON can't express, are refused by the rules, not by an exception."""
    with pytest.raises(Invalid):
        validate(Stock, {"field": value})
    with pytest.raises(Invalid):
        validate(Price, {"field": value})


def test_both_numbers_of_digits_are_required() -> None:
    """A rule with only one of the two numbers of digits is its author's mistake."""
    with pytest.raises(ValueError, match="go together"):
        Number(integer_digits=3)
