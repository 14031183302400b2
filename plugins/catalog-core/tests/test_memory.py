"""Products in memory are immutable records in a bounded, ordered and thread-safe catalog."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import falcon
import pytest
from falcon import testing
from msgspec.structs import replace
from pydantic import ValidationError

from plughost.http import decode
from plughost_catalog_core import (
    CatalogFull,
    MemoryCatalog,
    MemorySettings,
    Product,
    ProductDraft,
    ProductExists,
    ProductNotFound,
    send_list,
)


def draft(sku: str, stock: int = 1) -> ProductDraft:
    """Return a valid draft."""
    return ProductDraft(sku=sku, name=f"Name of {sku}", price=Decimal("19.99"), stock=stock)


def test_a_record_is_immutable() -> None:
    """A change makes a new record, with its own JSON."""
    product = MemoryCatalog(9).create(draft("A", stock=0))
    with pytest.raises(AttributeError):
        product.stock = 5  # type: ignore[misc] # the test is that this is impossible
    assert (product.in_stock, decode(product.json)["inStock"]) == (False, False)
    more = replace(product, stock=5)
    assert (more.in_stock, decode(more.json)["inStock"], decode(more.json)["stock"]) == (True, True, 5)


def test_products_are_listed_in_order_of_creation() -> None:
    """A product that was deleted and created again comes last."""
    catalog = MemoryCatalog(9)
    for sku in "CAB":
        catalog.create(draft(sku))
    catalog.delete("C")
    catalog.create(draft("C"))
    assert [product.sku for product in catalog.list()] == ["A", "B", "C"]


def test_a_list_is_a_snapshot() -> None:
    """Later changes don't affect a list that is being sent."""
    catalog = MemoryCatalog(9)
    catalog.create(draft("A"))
    before = catalog.list()
    catalog.create(draft("B"))
    catalog.delete("A")
    assert [product.sku for product in before] == ["A"]


def test_a_full_catalog_accepts_products_after_a_delete() -> None:
    """A full catalog refuses new SKUs with 507, and taken ones still with 409."""
    catalog = MemoryCatalog(2)
    catalog.create(draft("A"))
    catalog.create(draft("B"))
    with pytest.raises(CatalogFull) as full:
        catalog.create(draft("C"))
    assert (full.value.status_code, full.value.description) == (507, "The catalog is full: it keeps at most 2 products")
    with pytest.raises(ProductExists):
        catalog.create(draft("A"))
    catalog.delete("A")
    assert catalog.create(draft("C")) == catalog.get("C")


def test_an_unknown_sku_is_not_found() -> None:
    """Get and delete name the unknown SKU."""
    catalog = MemoryCatalog(9)
    for operation in (catalog.get, catalog.delete):
        with pytest.raises(ProductNotFound) as unknown:
            operation("x/y")
        assert (unknown.value.status_code, unknown.value.description) == (404, "Product not found: x/y")


def test_only_one_of_simultaneous_creates_succeeds() -> None:
    """If many threads create one SKU at once, all others learn that it exists."""
    catalog = MemoryCatalog(100)
    together = threading.Barrier(16)

    def create(_: int) -> bool:
        together.wait()
        try:
            catalog.create(draft("A"))
        except ProductExists:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        for _ in range(50):
            assert sum(pool.map(create, range(16))) == 1
            catalog.delete("A")


@pytest.mark.parametrize("count", [0, 1, 1000, 1001, 2500])
def test_a_list_of_any_length_is_one_array(count: int) -> None:
    """A long list is sent in parts, with its total length; HEAD announces the same length."""
    catalog = MemoryCatalog(count)
    skus = [f"SKU-{number}-é" for number in range(count)]
    for sku in skus:
        catalog.create(draft(sku))

    class Resource:
        def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
            send_list(resp, catalog.list())

        on_head = on_get

    app = falcon.App()
    app.add_route("/", Resource())
    client = testing.TestClient(app)
    answer = client.simulate_get("/")
    assert [product["sku"] for product in answer.json] == skus
    assert answer.headers["Content-Length"] == str(len(answer.content))
    assert client.simulate_head("/").headers["Content-Length"] == str(len(answer.content))


def test_invalid_settings_are_refused() -> None:
    """The bound is an integer from 0; an unknown key is an error."""
    assert MemorySettings().max_products == 100_000
    with pytest.raises(ValidationError):
        MemorySettings(max_products=-1)
    with pytest.raises(ValidationError):
        MemorySettings.model_validate({"max_product": 5})


def test_records_with_equal_fields_are_equal() -> None:
    """A record is compared by value."""
    assert Product("A", "Tea", Decimal(1), 2) == Product("A", "Tea", Decimal(1), 2)
