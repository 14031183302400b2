"""Pages, filters and orders, and the SPEC's read queries, on each engine."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from plughost_catalog_core import ProductDraft

if TYPE_CHECKING:
    from plughost_catalog_store import Catalog, Product


def draft(sku: str, *, name: str = "Tea", price: str = "19.99", stock: int = 1) -> ProductDraft:
    """Return a product as a client sends it."""
    return ProductDraft(sku=sku, name=name, price=Decimal(price), stock=stock)


@pytest.fixture
def products(catalog: Catalog) -> list[Product]:
    """A few products, in order of creation."""
    rows = [
        ("d", "Tea", "10", 0),
        ("b", "tea", "2.5", 3),
        ("ä", "Tea", "10.0001", 2),
        ("a", "Coffee", "9.9999", 3),
        ("C", "100% tea_pot\\", "0", 2**63 - 1),
    ]
    return [catalog.create(draft(sku, name=name, price=price, stock=stock)) for sku, name, price, stock in rows]


def skus(products: list[Product]) -> str:
    """Return the SKUs in one string."""
    return "".join(product.sku for product in products)


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([], "dbäaC"),
        ([("id", True)], "Caäbd"),
        ([("sku", False)], "Cabdä"),
        ([("sku", True)], "ädbaC"),
        ([("name", False)], "Cadäb"),
        ([("name", False), ("price", True)], "Caädb"),
        ([("name", True), ("sku", False)], "bdäaC"),
        ([("price", False)], "Cbadä"),
        ([("price", True)], "ädabC"),
        ([("stock", True)], "Cbaäd"),
        ([("stock", True), ("id", True)], "Cabäd"),
    ],
)
def test_products_are_sorted(catalog: Catalog, order: list[tuple[str, bool]], expected: str) -> None:
    """Several fields sort, each in its direction, texts by code points and prices as numbers; the id comes last."""
    assert skus(catalog.page(order=order)) == expected


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"name": "Tea"}, "dä"),
        ({"name": "TEA"}, ""),
        ({"name": "Te_"}, ""),
        ({"price": Decimal(10)}, "d"),
        ({"price": Decimal("10.0000")}, "d"),
        ({"price": Decimal("10.0001")}, "ä"),
        ({"price": Decimal("10.00011")}, ""),
        ({"price": 0}, "C"),
        ({"stock": 3}, "ba"),
        ({"stock": 2**63 - 1}, "C"),
        ({"stock": 3, "name": "tea"}, "b"),
        ({"sku": "d", "name": "tea"}, ""),
        ({"sku": "' OR 1=1 --"}, ""),
        ({"sku": "x" * 5000}, ""),
    ],
)
def test_products_are_filtered(catalog: Catalog, filters: dict[str, str | int | Decimal], expected: str) -> None:
    """All filters are exact equalities and apply together; the count agrees."""
    assert skus(catalog.page(filters=filters)) == expected
    assert catalog.count(filters) == len(expected)


def test_pages_make_up_the_whole_list(catalog: Catalog, products: list[Product]) -> None:
    """Pages beyond the end are empty, however far."""
    pages = [catalog.page(offset=offset, limit=2) for offset in (0, 2, 4, 6, 2**63 - 1, 2**80)]
    assert [product for page in pages for product in page] == products
    assert pages[3:] == [[], [], []]
    assert catalog.page(limit=2**80) == products
    assert catalog.count() == 5


@pytest.mark.parametrize("name", ["category", "sku; DROP TABLE products", "", "SKU"])
def test_unknown_fields_are_refused(catalog: Catalog, name: str) -> None:
    """Products can be sorted and filtered only by their own fields."""
    with pytest.raises(LookupError):
        catalog.page(order=[(name, False)])
    with pytest.raises(LookupError):
        catalog.count({name: "x"})


def test_a_price_range_includes_both_ends(catalog: Catalog, products: list[Product]) -> None:
    """A difference in the last digit decides."""
    found = catalog.priced_between(Decimal("9.9999"), Decimal(10))
    assert skus(list(found)) == "da"
    assert skus(list(catalog.priced_between(Decimal(10), Decimal(9)))) == ""


@pytest.mark.usefixtures("products")
def test_in_stock_is_more_than_none(catalog: Catalog) -> None:
    """Products with a stock of 0 are left out."""
    assert skus(list(catalog.in_stock())) == "bäaC"


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    ("text", "expected"),
    [("ea", "dbäC"), ("Tea", "dä"), ("100%", "C"), ("%", "C"), ("_", "C"), ("\\", "C"), ("x", ""), ("$text", "")],
)
def test_a_text_is_found_in_names(catalog: Catalog, text: str, expected: str) -> None:
    """It may be anywhere in a name; it is literal and case-sensitive."""
    assert skus(catalog.named(text)) == expected


def test_names_are_paged(catalog: Catalog, products: list[Product]) -> None:
    """The pages of a search count from zero; pages beyond the last are empty."""
    pages = [catalog.named("e", page, 2) for page in range(3)]
    assert [product for page in pages for product in page] == products
    assert catalog.named("e", 2**63, 2**63) == []
