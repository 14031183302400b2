"""The product rules: which drafts are accepted, and how the others are refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plughost.http import Invalid, decode, encode, validate
from plughost_catalog_core import MAX_STOCK, ProductDraft, sku_path

GOOD: dict[str, Any] = {"sku": "A-1", "name": "Tea", "price": Decimal("4.95"), "stock": 7}
DIGITS = "numeric value out of bounds (11 digits.4 digits expected)"


def refusals(value: Any) -> dict[str, str]:
    """Return a dictionary of a value's invalid fields and their messages."""
    with pytest.raises(Invalid) as caught:
        validate(ProductDraft, value)
    return {violation.field: violation.message for violation in caught.value.violations}


@pytest.mark.parametrize("field", ["sku", "name"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "must not be blank"),
        ("", "must not be blank"),
        (" \t\u3000\u2028", "must not be blank"),
        (5, "must be a string"),
        (True, "must be a string"),
        (["a"], "must be a string"),
        ("é" * 256, "size must be between 0 and 255"),
    ],
)
def test_an_invalid_text_is_refused_with_the_contracts_message(field: str, value: object, text: str) -> None:
    """SKU and name are strings of 1 to 255 code points, not blank."""
    assert refusals({**GOOD, field: value}) == {field: text}


@pytest.mark.parametrize("field", ["sku", "name"])
def test_nul_is_refused(field: str) -> None:
    """A NUL in a text is the client's error, and only in that field."""
    assert list(refusals({**GOOD, field: "a\0b"})) == [field]


@pytest.mark.parametrize("text", ["😀" * 255, " a ", "a/b/", ".", "..", "\x01\x7f\u200b", "é", "e\u0301"])
def test_a_valid_text_is_stored_exactly_as_sent(text: str) -> None:
    """Nothing is stripped or normalised, and only the rules' exceptions are refused; length counts code points."""
    draft = validate(ProductDraft, {**GOOD, "sku": text, "name": text})
    assert (draft.sku, draft.name) == (text, text)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("null", "must not be null"),
        ('"19.99"', "must be a number"),
        ("true", "must be a number"),
        ("[]", "must be a number"),
        ("-0.01", "must be greater than or equal to 0"),
        ("-1e200", "must be greater than or equal to 0"),
        ("100000000000", DIGITS),
        ("1e11", DIGITS),
        ("0.00001", DIGITS),
        ("1e-300", DIGITS),
    ],
)
def test_an_invalid_price_is_refused_with_the_contracts_message(raw: str, text: str) -> None:
    """A price is a number from 0 with at most 11 digits before and 4 after the point."""
    assert refusals({**GOOD, "price": decode(raw.encode())}) == {"price": text}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("19.99", "19.99"),
        ("0", "0"),
        ("-0.0", "0"),
        ("1e2", "100"),
        ("1.50000", "1.5"),
        ("1.50", "1.5"),
        ("1.0", "1"),
        ("0.0001", "0.0001"),
        ("99999999999.9999", "99999999999.9999"),
        ("0.1", "0.1"),
    ],
)
def test_a_price_is_exact(raw: str, shown: str) -> None:
    """A price keeps its value, without an exponent or zeros at its end."""
    assert encode(validate(ProductDraft, {**GOOD, "price": decode(raw.encode())}).price) == shown.encode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("null", "must not be null"),
        ("5.5", "must be an integer"),
        ('"5"', "must be an integer"),
        ("true", "must be an integer"),
        ("{}", "must be an integer"),
        ("-1", "must be greater than or equal to 0"),
        ("9223372036854775808", f"must be less than or equal to {MAX_STOCK}"),
        ("1e100", f"must be less than or equal to {MAX_STOCK}"),
    ],
)
def test_an_invalid_stock_is_refused_with_the_contracts_message(raw: str, text: str) -> None:
    """A stock is an integer from 0 to 2^63-1."""
    assert refusals({**GOOD, "stock": decode(raw.encode())}) == {"stock": text}


@pytest.mark.parametrize(("raw", "stock"), [("0", 0), ("5.0", 5), ("5e2", 500), (str(MAX_STOCK), MAX_STOCK)])
def test_a_stock_may_be_written_with_a_fraction_of_zero(raw: str, stock: int) -> None:
    """`5.0` is 5."""
    kept = validate(ProductDraft, {**GOOD, "stock": decode(raw.encode())}).stock
    assert (kept, type(kept)) == (stock, int)


def test_all_violations_are_reported_in_the_order_of_the_fields() -> None:
    """An empty body has a violation for each field."""
    assert list(refusals({}).items()) == [
        ("sku", "must not be blank"),
        ("name", "must not be blank"),
        ("price", "must not be null"),
        ("stock", "must not be null"),
    ]


def test_unknown_members_are_ignored() -> None:
    """An `id` or `inStock` in a body changes nothing."""
    assert validate(ProductDraft, {**GOOD, "id": 5, "inStock": False}) == validate(ProductDraft, GOOD)


@example(".")
@example("..")
@example("a/b?c#d%2F")
@given(st.text(min_size=1))
def test_the_path_of_a_sku_is_unambiguous(sku: str) -> None:
    """A SKU's path segment decodes to the SKU, and contains no slash and no dot segment."""
    segment = sku_path(sku)
    assert unquote(segment) == sku
    assert segment not in {".", ".."}
    assert not set(segment) & set("/?#")
