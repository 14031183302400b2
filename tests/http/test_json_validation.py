"""Validation: all invalid fields at once, sensible texts, and strictness for ordinary pydantic models too."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AliasPath, BaseModel, ConfigDict, Field, HttpUrl, field_validator, model_validator

from plughost.http import Invalid, Violation
from plughost.http._json.fields import Choice, Integer, Number, Text, absent
from plughost.http._json.validation import validate


class Draft(BaseModel):
    """A product as a client sends it."""

    sku: Annotated[str, Text(max_length=255)]
    name: Annotated[str, Text(max_length=255)]
    price: Annotated[Decimal, Number(minimum=0, integer_digits=11, fraction_digits=4)]
    stock: Annotated[int, Integer(minimum=0, maximum=2**63 - 1)]
    level: Annotated[str | None, Choice("LOW", "HIGH")] = absent()


def violations(model: type[BaseModel], value: Any) -> list[tuple[str, str]]:
    """Return the violations of an invalid value."""
    with pytest.raises(Invalid) as caught:
        validate(model, value)
    return [(violation.field, violation.message) for violation in caught.value.violations]


def test_every_invalid_field_is_named_once_and_in_order() -> None:
    """Missing and wrong members are reported together, in the order of the model."""
    assert violations(Draft, {"stock": -1, "name": 5, "level": "X"}) == [
        ("sku", "must not be blank"),
        ("name", "must be a string"),
        ("price", "must not be null"),
        ("stock", "must be greater than or equal to 0"),
        ("level", "must be one of LOW, HIGH"),
    ]


@pytest.mark.parametrize("value", [None, [], "text", 5, Decimal("1.5"), True, [{}]])
def test_a_body_that_is_no_object_is_one_violation(value: object) -> None:
    """Anything but an object is refused as a whole, under an empty name."""
    assert violations(Draft, value) == [("", "must be an object")]


def test_unknown_members_are_ignored() -> None:
    """Members that the model doesn't know change nothing."""
    value = {"sku": "a", "name": "b", "price": 1, "stock": 1, "id": None, "level ": []}
    assert validate(Draft, value).model_dump(exclude={"level"}) == {
        "sku": "a",
        "name": "b",
        "price": Decimal(1),
        "stock": 1,
    }


class Line(BaseModel):
    """A part of an order."""

    draft: Draft
    count: int


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    """A third party's model with pydantic's own types."""

    lines: list[Line] = []
    count: int = 0
    ratio: float = 0.0
    exact: Decimal = Decimal(0)
    title: str = ""
    short: Annotated[str, Field(min_length=2, max_length=3)] = "ab"
    few: Annotated[int, Field(ge=1, lt=5)] = 1
    gift: bool = False
    at: datetime.datetime | None = None
    day: int | datetime.date = 0
    either: int | float = 0
    yes_or_why: bool | str = False
    colour: Colour = Colour.RED
    kind: Literal["x", "y"] = "x"
    key: uuid.UUID | None = None
    url: HttpUrl | None = None
    tags: set[str] = set()
    by_number: dict[int, int] = {}
    note: str | None = Field(default=None, alias="noteText")
    named: str = ""

    @field_validator("named")
    @classmethod
    def _refuse(cls, value: str) -> str:
        if value == "bad":
            raise ValueError("Is bad, {indeed}")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Order:
        if self.count == 13:
            raise ValueError("must not be unlucky")
        return self


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"count": "5"}, [("count", "must be an integer")]),
        ({"count": True}, [("count", "must be an integer")]),
        ({"count": Decimal("5.5")}, [("count", "must be an integer")]),
        ({"count": None}, [("count", "must not be null")]),
        ({"ratio": "1.5"}, [("ratio", "must be a number")]),
        ({"ratio": False}, [("ratio", "must be a number")]),
        ({"ratio": 10**400}, [("ratio", "must be a number")]),
        ({"exact": True}, [("exact", "must be a number")]),
        ({"exact": "x"}, [("exact", "must be a number")]),
        ({"title": 5}, [("title", "must be a string")]),
        ({"title": Decimal("5.5")}, [("title", "must be a string")]),
        ({"short": "a"}, [("short", "size must be at least 2")]),
        ({"short": "abcd"}, [("short", "size must be between 0 and 3")]),
        ({"few": 0}, [("few", "must be greater than or equal to 1")]),
        ({"few": 5}, [("few", "must be less than 5")]),
        ({"gift": 1}, [("gift", "must be a boolean")]),
        ({"gift": "yes"}, [("gift", "must be a boolean")]),
        ({"at": "soon"}, [("at", "must be a valid datetime or date, input is too short")]),
        ({"either": "5"}, [("either", "must be an integer or a number")]),
        ({"yes_or_why": 1}, [("yes_or_why", "must be a boolean or a string")]),
        ({"either": None}, [("either", "must not be null")]),
        ({"colour": "green"}, [("colour", "must be one of 'red' or 'blue'")]),
        ({"colour": None}, [("colour", "must not be null")]),
        ({"kind": "z"}, [("kind", "must be one of 'x' or 'y'")]),
        ({"key": 5}, [("key", "must be a valid UUID")]),
        ({"url": 5}, [("url", "must be a valid URL")]),
        ({"tags": "a"}, [("tags", "must be an array")]),
        ({"tags": ["a", 5]}, [("tags[1]", "must be a string")]),
        ({"lines": {}}, [("lines", "must be an array")]),
        ({"lines": [{"draft": 5}]}, [("lines[0].draft", "must be an object"), ("lines[0].count", "must not be null")]),
        ({"by_number": {"x": 1}}, [("by_number.x", "must be an integer")]),
        ({"by_number": {"1": "1"}}, [("by_number.1", "must be an integer")]),
        ({"noteText": 5}, [("noteText", "must be a string")]),
        ({"named": "bad"}, [("named", "is bad, {indeed}")]),
        ({"count": 13}, [("", "must not be unlucky")]),
    ],
)
def test_ordinary_pydantic_types_have_sensible_texts(value: object, expected: Sequence[tuple[str, str]]) -> None:
    """A model of plain pydantic types refuses wrong JSON types, in words without pydantic's internals."""
    assert violations(Order, value) == list(expected)


def test_missing_members_are_named_wherever_they_are() -> None:
    """A missing member of a nested object is reported in the words of its own rule, with the whole path."""
    good = {"sku": "a", "name": "b", "price": 1, "stock": 1}
    lines = [{"draft": good, "count": 1}, {"draft": {**good, "sku": " "}}, {"draft": {"name": "b"}, "count": "1"}]
    assert violations(Order, {"lines": lines}) == [
        ("lines[1].draft.sku", "must not be blank"),
        ("lines[1].count", "must not be null"),
        ("lines[2].draft.sku", "must not be blank"),
        ("lines[2].draft.price", "must not be null"),
        ("lines[2].draft.stock", "must not be null"),
        ("lines[2].count", "must be an integer"),
    ]


def test_types_that_json_writes_as_strings_are_parsed() -> None:
    """Dates, enumerations, UUIDs, sets and Decimals come from strings and arrays; integral numbers are integers."""
    key = uuid.uuid4()
    order = validate(
        Order,
        {
            "count": Decimal("5.0"),
            "ratio": Decimal("1.5"),
            "exact": "1.10",
            "at": "2026-11-05T08:30:00Z",
            "day": "2026-11-05",
            "colour": "blue",
            "key": str(key),
            "tags": ["a", "a"],
            "by_number": {"1": 2},
            "either": Decimal("2.5"),
        },
    )
    assert (order.count, order.ratio, order.exact, order.either) == (5, 1.5, Decimal("1.10"), 2.5)
    assert order.at == datetime.datetime(2026, 11, 5, 8, 30, tzinfo=datetime.UTC)
    assert (order.day, order.colour, order.key) == (datetime.date(2026, 11, 5), Colour.BLUE, key)
    assert (order.tags, order.by_number) == ({"a"}, {1: 2})


def test_a_model_may_forbid_unknown_members() -> None:
    """A model with extra="forbid" names the unknown member."""

    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid")
        a: int = 0

    assert violations(Closed, {"b": 1}) == [("b", "extra inputs are not permitted")]


def test_a_required_nullable_member_must_be_there() -> None:
    """A field that may be null but not missing is reported as missing."""

    class Nullable(BaseModel):
        a: int | None
        b: int

    assert violations(Nullable, {"b": "x"}) == [("b", "must be an integer"), ("a", "must be present")]


@pytest.mark.parametrize("line", [5, {}])
def test_violations_are_limited_in_number(line: object) -> None:
    """The answer to a body with very many mistakes, or missing members, isn't much larger than the body."""
    assert len(violations(Order, {"lines": [line] * 5000})) == 1000


@pytest.mark.parametrize("line", [5, {}])
def test_more_errors_than_anybody_reads_are_not_named(line: object) -> None:
    """To describe each would take a thousand times the memory of the body."""
    assert violations(Order, {"lines": [line] * 10_001}) == [("", "has more than 10000 errors")]


@pytest.mark.parametrize(
    ("value", "named"), [({}, "names.first"), ({"names": {}}, "names.first"), ({"names": 5}, "names")]
)
def test_a_member_that_its_path_lacks_is_one_violation(value: object, named: str) -> None:
    """A field whose alias is a path within the body may be missing anywhere on that path."""

    class Person(BaseModel):
        first: str = Field(validation_alias=AliasPath("names", "first"))
        age: int

    assert {field for field, _ in violations(Person, value)} == {named, "age"}


@pytest.mark.parametrize("text", ["{value}", "a\nb", "%s"])
def test_violations_do_not_repeat_the_value(text: str) -> None:
    """A violation names the rule and not the value, whatever characters the value has."""
    assert all(text not in message for _, message in violations(Draft, {name: [text] for name in Draft.model_fields}))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def members(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Return objects with some of a model's members, each with any value."""
    return st.dictionaries(st.sampled_from(list(model.model_fields)), json_values)


def outcome(model: type[BaseModel], value: Any) -> Any:
    """Return the model of a value, or why the value is invalid."""
    try:
        return validate(model, value)
    except Invalid as invalid:
        return invalid


@settings(deadline=None)
@given(json_values | members(Draft))
def test_any_value_is_valid_or_invalid(value: Any) -> None:
    """Any JSON gives either a valid product or a list of violations, one for each field."""
    draft = outcome(Draft, value)
    if isinstance(draft, Invalid):
        fields = [violation.field for violation in draft.violations]
        assert fields
        assert len(fields) == len(set(fields))
        assert all(isinstance(violation, Violation) and violation.message for violation in draft.violations)
    else:
        assert (draft.sku, draft.price) == (value["sku"], value["price"])
        assert 0 <= draft.stock < 2**63


@settings(deadline=None)
@given(members(Order))
def test_any_value_for_ordinary_types_is_valid_or_invalid(value: Any) -> None:
    """A model of plain pydantic types raises nothing but Invalid either."""
    order = outcome(Order, value)
    assert isinstance(order, Order) or order.violations
