"""The catalog stores products by SKU and by id, on each engine."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

import pytest

from plughost.http import encode
from plughost_catalog_core import ProductDraft, ProductExists, ProductNotFound
from plughost_catalog_store import Catalog, Product, table

if TYPE_CHECKING:
    from plughost.testing import RunningHost

SKUS = [
    *("a", "A", "ä", "a\u0308", "a ", " a", "a\t", "a/b", "a/", "/", ".", "..", "%", "%2F", "?", "#", "'", '"', "\\"),
    *(
        "$a",
        "$",
        "%s",
        "\u0001",
        "\x7f",
        "\u200b",
        "日本",
        "😀" * 255,
        "ß",
        "ss",
        "İ",
        "i",
        "\ufeff",
        "null",
        "1",
        "01",
    ),
]
PRICES = [
    *((price, price) for price in ("0", "0.0001", "0.1", "0.3", "19.99", "100", "12345678901.2345", "99999999999")),
    *(("99999999999.9999", "99999999999.9999"), ("1e2", "100"), ("1.5000", "1.5"), ("5.00", "5"), ("100.0", "100")),
]


@dataclass
class RefusedError(Exception):
    """The error of a check."""

    seen: Product | None


def draft(sku: str, *, name: str = "Tea", price: str = "19.99", stock: int = 1) -> ProductDraft:
    """Return a product as a client sends it."""
    return ProductDraft(sku=sku, name=name, price=Decimal(price), stock=stock)


def refuse(product: Product | None) -> None:
    """Refuse any product, as a check."""
    raise RefusedError(product)


def all_products(catalog: Catalog) -> list[Product]:
    """Return all products."""
    return [product for batch in catalog.batches() for product in batch]


@pytest.mark.parametrize("sku", SKUS)
def test_any_sku_is_stored(catalog: Catalog, sku: str) -> None:
    """A SKU of any characters is created, read and deleted unchanged."""
    created = catalog.create(draft(sku))
    assert created.sku == sku
    assert catalog.get(sku) == created
    catalog.delete(sku)
    with pytest.raises(ProductNotFound):
        catalog.get(sku)


def test_skus_are_compared_by_code_points(catalog: Catalog) -> None:
    """They differ by case, accents, spaces and normal form."""
    for sku in SKUS:
        catalog.create(draft(sku))
    assert [product.sku for product in all_products(catalog)] == SKUS
    assert [catalog.get(sku).sku for sku in SKUS] == SKUS


@pytest.mark.parametrize(("price", "shown"), PRICES)
def test_prices_are_exact(catalog: Catalog, price: str, shown: str) -> None:
    """Creates and reads return a price as the same number, in its shortest form."""
    created = catalog.create(draft("a", price=price))
    for product in (created, catalog.get("a"), catalog.find(created.id), *all_products(catalog)):
        assert product is not None
        assert product.price == Decimal(price)
        assert str(product.price) == shown


def test_prices_are_exact_in_any_decimal_context(catalog: Catalog) -> None:
    """Another plugin may have set a low precision in the thread of the request."""
    with localcontext(prec=2):
        assert catalog.create(draft("a", price="12345.6700")).price == Decimal("12345.67")


@pytest.mark.parametrize("stock", [0, 1, 2**31, 2**53 + 1, 2**63 - 1])
def test_stock_is_64_bits(catalog: Catalog, stock: int) -> None:
    """All stocks up to 2^63-1 are exact."""
    catalog.create(draft("a", stock=stock))
    assert catalog.get("a").stock == stock
    assert catalog.get("a").in_stock == (stock > 0)


def test_a_taken_sku_is_refused_by_name(catalog: Catalog) -> None:
    """A second product with a SKU is refused, and changes nothing."""
    first = catalog.create(draft("a", name="first"))
    with pytest.raises(ProductExists) as caught:
        catalog.create(draft("a", name="second"))
    assert caught.value.description == "Product SKU already exists: a"
    assert all_products(catalog) == [first]


def test_only_one_of_simultaneous_creates_succeeds(catalog: Catalog) -> None:
    """Of many creates of one SKU, all others find it taken."""
    barrier = threading.Barrier(8)

    def create(number: int) -> Product | None:
        barrier.wait()
        try:
            return catalog.create(draft("a", stock=number))
        except ProductExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [product for product in pool.map(create, range(8)) if product]
    assert all_products(catalog) == won
    assert len(won) == 1


def test_unknown_skus_and_ids_are_not_found(catalog: Catalog) -> None:
    """The error names an unknown SKU, however long; an unknown id returns None."""
    for sku in ("b", "x" * 5000):
        with pytest.raises(ProductNotFound):
            catalog.get(sku)
        with pytest.raises(ProductNotFound) as caught:
            catalog.delete(sku)
        assert caught.value.description == f"Product not found: {sku}"
    assert catalog.find(2**63 - 1) is None
    assert catalog.remove(2**63 - 1) is False


def test_ids_are_never_reused(catalog: Catalog) -> None:
    """The id of a deleted product is not generated again, even if it was the highest."""
    first = catalog.create(draft("a"))
    catalog.delete("a")
    second = catalog.create(draft("a"))
    assert catalog.remove(second.id)
    assert first.id < second.id < catalog.create(draft("a")).id


def test_put_creates_under_the_given_id(catalog: Catalog) -> None:
    """An absent id is accepted, and later generated ids are higher."""
    before = catalog.create(draft("before")).id
    far, new = catalog.put(before + 1000, draft("far"))
    assert (far.id, new) == (before + 1000, True)
    near, new = catalog.put(before + 5, draft("near"))
    assert (near.id, new) == (before + 5, True)
    after = catalog.create(draft("after")).id
    assert after > far.id
    assert [product.id for product in all_products(catalog)] == [before, near.id, far.id, after]


def test_put_of_a_deleted_highest_id_prevents_its_reuse(catalog: Catalog) -> None:
    """A deleted id that a client chose is not generated either."""
    chosen = catalog.create(draft("a")).id + 100
    catalog.put(chosen, draft("b"))
    catalog.remove(chosen)
    assert catalog.create(draft("c")).id > chosen


def test_put_of_the_next_id_does_not_collide(catalog: Catalog) -> None:
    """A create still succeeds after a put has taken the next id."""
    following = catalog.create(draft("a")).id + 1
    catalog.put(following, draft("b"))
    assert catalog.create(draft("c")).id > following


def test_put_replaces(catalog: Catalog) -> None:
    """An existing id stays, and all other fields are replaced."""
    created = catalog.create(draft("a"))
    replaced, new = catalog.put(created.id, draft("b", name="New", price="0.5", stock=7))
    assert not new
    assert replaced == Product(created.id, "b", "New", Decimal("0.5"), 7)
    assert all_products(catalog) == [replaced]


def test_put_with_a_taken_sku_is_refused(catalog: Catalog) -> None:
    """Neither a replacement nor a create may take another product's SKU; a product may keep its own."""
    first, second = catalog.create(draft("a")), catalog.create(draft("b"))
    for product_id in (second.id, second.id + 10):
        with pytest.raises(ProductExists):
            catalog.put(product_id, draft("a"))
    assert all_products(catalog) == [first, second]
    assert catalog.put(first.id, draft("a", stock=9)) == (Product(first.id, "a", "Tea", Decimal("19.99"), 9), False)


def test_a_check_can_prevent_a_change(catalog: Catalog) -> None:
    """A check receives the current product or None; if it raises, nothing changes."""
    created = catalog.create(draft("a"))
    for product_id, seen in ((created.id, created), (created.id + 1, None)):
        with pytest.raises(RefusedError) as put:
            catalog.put(product_id, draft("b"), refuse)
        with pytest.raises(RefusedError) as removed:
            catalog.remove(product_id, refuse)
        assert put.value.seen == removed.value.seen == seen
    assert all_products(catalog) == [created]


def test_only_one_of_simultaneous_conditional_updates_succeeds(catalog: Catalog) -> None:
    """When many replace what they read, only the first finds it unchanged."""
    created = catalog.create(draft("a", stock=0))
    barrier = threading.Barrier(8)

    def unchanged(product: Product | None) -> None:
        if product != created:
            raise RefusedError(product)

    def replace(number: int) -> bool:
        barrier.wait()
        try:
            catalog.put(created.id, draft("a", stock=number), unchanged)
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(replace, range(1, 9))) == 1


def test_simultaneous_puts_and_creates_all_succeed(catalog: Catalog) -> None:
    """The puts use the next ids, and yet each create gets its own id."""
    start = catalog.create(draft("start")).id
    barrier = threading.Barrier(8)

    def put(number: int) -> list[int]:
        barrier.wait()
        return [catalog.put(start + each * number, draft(f"put {number} {each}"))[0].id for each in range(1, 20)]

    def create(number: int) -> list[int]:
        barrier.wait()
        return [catalog.create(draft(f"create {number} {each}")).id for each in range(20)]

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(put if number % 2 else create, number) for number in range(8)]
        ids = [done.result() for done in running]
    created = [product_id for each in ids[::2] for product_id in each]
    assert len(set(created)) == len(created)
    assert {product.id for product in all_products(catalog)} == {start}.union(*ids)


@pytest.mark.parametrize("number", [999, 1000, 1001, 2500])
def test_a_long_list_comes_in_batches(host: RunningHost, catalog: Catalog, number: int) -> None:
    """All products occur once, in order of creation, in batches of limited size."""
    values = [[f"sku {each}" for each in range(number)]]
    host.store("catalog").run(
        lambda session: [table.insert(session, draft(sku)) for sku in values[0]] and None,
    )
    batches = list(catalog.batches())
    assert [product.sku for batch in batches for product in batch] == values[0]
    assert max(map(len, batches)) <= 1000


@pytest.mark.parametrize("price", ["0", "0.0001", "5.00", "100", "19.99", "99999999999.9999"])
def test_a_list_is_encoded_like_its_products(catalog: Catalog, price: str) -> None:
    """A list encoded by the database has the same text as its products, whatever their names."""
    for name in ("Tea", "1E+5"):
        catalog.create(ProductDraft(sku=name, name=name, price=Decimal(price), stock=1))
    assert [encode(batch) for batch in catalog.lines()] == [encode(batch) for batch in catalog.batches()]


@pytest.mark.parametrize(("text", "price"), [("12,50", 12), ("", 0)])
def test_a_text_in_place_of_a_price_spoils_no_list(host: RunningHost, catalog: Catalog, text: str, price: int) -> None:
    """SQLite keeps what somebody imports; it is read as the number that it begins with."""
    store = host.store("catalog")
    if store.dialect != "sqlite":
        pytest.skip("PostgreSQL's columns have types")
    catalog.create(draft("a"))
    store.single(lambda session: session.change("UPDATE products SET price = ?", text))
    assert catalog.get("a").price == price
    assert [line.price for batch in catalog.lines() for line in batch] == [price]


def test_products_encode_as_objects(catalog: Catalog) -> None:
    """A product can be encoded directly."""
    created = catalog.create(draft("a"))
    assert json.loads(encode(created)) == {"id": created.id, "sku": "a", "name": "Tea", "price": 19.99, "stock": 1}
