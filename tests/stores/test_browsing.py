"""Browsing: reading the rows of a store's tables, the same on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stores.operations import add

from plughost.stores import OpenStore, browse


@pytest.fixture
def filled(store: OpenStore[Any]) -> OpenStore[Any]:
    """A store with a few products."""
    for sku in ("tea", "100%", "a_b", "axb", "<script>"):
        store.run(add, sku, name=f"The {sku}")
    return store


def _skus(store: OpenStore[Any], **how: Any) -> list[str]:
    found = browse(store, "products", **how)
    return [row[found.columns.index("sku")] for row in found.rows]


def test_rows_come_in_pages(filled: OpenStore[Any]) -> None:
    """A page starts and ends as requested, and has the total number of rows."""
    found = browse(filled, "products", offset=1, limit=2)
    assert (found.columns, found.total) == (("id", "sku", "name", "price", "stock"), 5)
    assert _skus(filled, offset=1, limit=2) == ["100%", "a_b"]


@pytest.mark.parametrize(
    ("search", "skus"),
    [
        ("the TEA", ["tea"]),
        ("%", ["100%"]),
        ("_", ["a_b"]),
        ("\\", []),
        ("'; drop table products --", []),
        ("a\0", []),
        ("\ud800", []),
        ("19.99", ["tea", "100%", "a_b", "axb", "<script>"]),
    ],
)
def test_rows_are_searched_as_text(filled: OpenStore[Any], search: str, skus: list[str]) -> None:
    """Any column may contain the text, and no character of the text is special."""
    assert _skus(filled, search=search) == skus


def test_only_the_stores_own_tables_are_shown(filled: OpenStore[Any]) -> None:
    """Other tables of the database are hidden."""
    with pytest.raises(KeyError):
        browse(filled, "plughost_migrations")


def test_rows_are_sorted_and_filtered_by_a_value(filled: OpenStore[Any]) -> None:
    """Any column sorts, in either direction; a value must be equal; unknown columns are refused."""
    assert _skus(filled, order="id", descending=True) == ["<script>", "axb", "a_b", "100%", "tea"]
    assert _skus(filled, where={"sku": "a_b"}) == ["a_b"]
    assert _skus(filled, where={"sku": "a_b"}, search="tea") == []
    assert _skus(filled, where={"sku": "a\0"}) == []
    for how in ({"order": "sku; --"}, {"where": {"nothing": "x"}}):
        with pytest.raises(KeyError):
            _skus(filled, **how)
