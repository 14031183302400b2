"""Products in memory: immutable records in order, bounded, safe between threads."""

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
    """Return a draft that keeps the rules."""
    return ProductDraft(sku=sku, name=f"Name of {sku}", price=Decimal("19.99"), stock=stock)


def test_a_record_never_changes() -> None:
    """A product can't be changed; a change is a new record, whose JSON is its own."""
    product = MemoryCatalog(9).create(draft("A", stock=0))
    with pytest.raises(AttributeError):
        product.stock = 5  # type: ignore[misc] # that it can't be done is the test
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
    """What happens later doesn't reach a list that is being sent."""
    catalog = MemoryCatalog(9)
    catalog.create(draft("A"))
    before = catalog.list()
    catalog.create(draft("B"))
    catalog.delete("A")
    assert [product.sku for product in before] == ["A"]


def test_the_bound_holds_until_there_is_room_again() -> None:
    """A full catalog refuses with 507, a taken SKU with 409 even then, and a delete makes room."""
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
    """Get and delete name the SKU that nobody has."""
    catalog = MemoryCatalog(9)
    for operation in (catalog.get, catalog.delete):
        with pytest.raises(ProductNotFound) as unknown:
            operation("x/y")
        assert (unknown.value.status_code, unknown.value.description) == (404, "Product not found: x/y")


def test_of_racing_creates_one_wins() -> None:
    """However many threads create one SKU at once, one does and the others are told it exists."""
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
    """Long lists go out in parts, with the length of the whole; HEAD tells the same length."""
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


def test_settings_refuse_what_cannot_be() -> None:
    """The bound is a number from 0; an unknown key is an error."""
    assert MemorySettings().max_products == 100_000
    with pytest.raises(ValidationError):
        MemorySettings(max_products=-1)
    with pytest.raises(ValidationError):
        MemorySettings.model_validate({"max_product": 5})


def test_records_with_equal_fields_are_equal() -> None:
    """A record is a value."""
    assert Product("A", "Tea", Decimal(1), 2) == Product("A", "Tea", Decimal(1), 2)
