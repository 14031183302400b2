"""What the catalog keeps, by SKU and by id, on each engine."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
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
    """What a check raises."""

    seen: Product | None


def draft(sku: str, *, name: str = "Tea", price: str = "19.99", stock: int = 1) -> ProductDraft:
    """Return a product as a client describes it."""
    return ProductDraft(sku=sku, name=name, price=Decimal(price), stock=stock)


def refuse(product: Product | None) -> None:
    """Be a check that lets nothing through."""
    raise RefusedError(product)


def everything(catalog: Catalog) -> list[Product]:
    """Return all products."""
    return [product for batch in catalog.batches() for product in batch]


@pytest.mark.parametrize("sku", SKUS)
def test_any_sku_is_kept(catalog: Catalog, sku: str) -> None:
    """A SKU of any characters is created, read and deleted as it is."""
    created = catalog.create(draft(sku))
    assert created.sku == sku
    assert catalog.get(sku) == created
    catalog.delete(sku)
    with pytest.raises(ProductNotFound):
        catalog.get(sku)


def test_skus_that_differ_in_anything_are_different(catalog: Catalog) -> None:
    """SKUs are the same by code points only: not by case, accents, spaces or normal form."""
    for sku in SKUS:
        catalog.create(draft(sku))
    assert [product.sku for product in everything(catalog)] == SKUS
    assert [catalog.get(sku).sku for sku in SKUS] == SKUS


@pytest.mark.parametrize(("price", "shown"), PRICES)
def test_prices_are_exact(catalog: Catalog, price: str, shown: str) -> None:
    """A price comes back as the same number, in its shortest form, from a create as from a read."""
    created = catalog.create(draft("a", price=price))
    for product in (created, catalog.get("a"), catalog.find(created.id), *everything(catalog)):
        assert product is not None
        assert product.price == Decimal(price)
        assert str(product.price) == shown


@pytest.mark.parametrize("stock", [0, 1, 2**31, 2**53 + 1, 2**63 - 1])
def test_stock_is_64_bits(catalog: Catalog, stock: int) -> None:
    """All stocks up to 2^63-1 are exact."""
    catalog.create(draft("a", stock=stock))
    assert catalog.get("a").stock == stock
    assert catalog.get("a").in_stock == (stock > 0)


def test_a_taken_sku_is_refused(catalog: Catalog) -> None:
    """A second product with a SKU is refused by name, and changes nothing."""
    first = catalog.create(draft("a", name="first"))
    with pytest.raises(ProductExists) as caught:
        catalog.create(draft("a", name="second"))
    assert caught.value.description == "Product SKU already exists: a"
    assert everything(catalog) == [first]


def test_racing_creates_have_one_winner(catalog: Catalog) -> None:
    """Of many creates of one SKU at the same time one succeeds; the others find it taken."""
    barrier = threading.Barrier(8)

    def create(number: int) -> Product | None:
        barrier.wait()
        try:
            return catalog.create(draft("a", stock=number))
        except ProductExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [product for product in pool.map(create, range(8)) if product]
    assert everything(catalog) == won
    assert len(won) == 1


def test_what_is_not_there_is_not_found(catalog: Catalog) -> None:
    """Getting or deleting an unknown SKU, however long, names it; an unknown id is None."""
    for sku in ("b", "x" * 5000):
        with pytest.raises(ProductNotFound):
            catalog.get(sku)
        with pytest.raises(ProductNotFound) as caught:
            catalog.delete(sku)
        assert caught.value.description == f"Product not found: {sku}"
    assert catalog.find(2**63 - 1) is None
    assert catalog.remove(2**63 - 1) is False


def test_ids_are_never_reused(catalog: Catalog) -> None:
    """The id of a deleted product is not generated again, even where it was the highest."""
    first = catalog.create(draft("a"))
    catalog.delete("a")
    second = catalog.create(draft("a"))
    assert catalog.remove(second.id)
    assert first.id < second.id < catalog.create(draft("a")).id


def test_put_creates_under_the_given_id(catalog: Catalog) -> None:
    """An absent id is taken as given; the ids that are generated from then on are beyond it."""
    before = catalog.create(draft("before")).id
    far, new = catalog.put(before + 1000, draft("far"))
    assert (far.id, new) == (before + 1000, True)
    near, new = catalog.put(before + 5, draft("near"))
    assert (near.id, new) == (before + 5, True)
    after = catalog.create(draft("after")).id
    assert after > far.id
    assert [product.id for product in everything(catalog)] == [before, near.id, far.id, after]


def test_put_of_a_deleted_highest_id_does_not_bring_it_back_later(catalog: Catalog) -> None:
    """An id that a client chose and that was deleted is not generated either."""
    chosen = catalog.create(draft("a")).id + 100
    catalog.put(chosen, draft("b"))
    catalog.remove(chosen)
    assert catalog.create(draft("c")).id > chosen


def test_put_of_the_next_id_does_not_collide(catalog: Catalog) -> None:
    """Taking the very id that would have been generated next leaves a create unharmed."""
    following = catalog.create(draft("a")).id + 1
    catalog.put(following, draft("b"))
    assert catalog.create(draft("c")).id > following


def test_put_replaces(catalog: Catalog) -> None:
    """An id that is there keeps it, and gets all else anew."""
    created = catalog.create(draft("a"))
    replaced, new = catalog.put(created.id, draft("b", name="New", price="0.5", stock=7))
    assert not new
    assert replaced == Product(created.id, "b", "New", Decimal("0.5"), 7)
    assert everything(catalog) == [replaced]


def test_put_with_a_taken_sku_is_refused(catalog: Catalog) -> None:
    """Neither replacing nor creating may take another product's SKU; its own it may keep."""
    first, second = catalog.create(draft("a")), catalog.create(draft("b"))
    for product_id in (second.id, second.id + 10):
        with pytest.raises(ProductExists):
            catalog.put(product_id, draft("a"))
    assert everything(catalog) == [first, second]
    assert catalog.put(first.id, draft("a", stock=9)) == (Product(first.id, "a", "Tea", Decimal("19.99"), 9), False)


def test_a_check_decides(catalog: Catalog) -> None:
    """A check sees the product as it is, or None; if it raises, nothing is done."""
    created = catalog.create(draft("a"))
    for product_id, seen in ((created.id, created), (created.id + 1, None)):
        with pytest.raises(RefusedError) as put:
            catalog.put(product_id, draft("b"), refuse)
        with pytest.raises(RefusedError) as removed:
            catalog.remove(product_id, refuse)
        assert put.value.seen == removed.value.seen == seen
    assert everything(catalog) == [created]


def test_of_racing_conditional_updates_one_wins(catalog: Catalog) -> None:
    """When many replace what they saw, only the first finds it as it was."""
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


def test_puts_and_creates_race_without_loss(catalog: Catalog) -> None:
    """Puts of the ids that come next and creates at the same time all succeed, and each create has an id of its own."""
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
    assert {product.id for product in everything(catalog)} == {start}.union(*ids)


@pytest.mark.parametrize("number", [999, 1000, 1001, 2500])
def test_a_long_list_comes_in_batches(host: RunningHost, catalog: Catalog, number: int) -> None:
    """All products come once, in order of creation, in batches of bounded size."""
    values = [[f"sku {each}" for each in range(number)]]
    host.store("catalog").run(
        lambda session: [table.insert(session, draft(sku)) for sku in values[0]] and None,
    )
    batches = list(catalog.batches())
    assert [product.sku for batch in batches for product in batch] == values[0]
    assert max(map(len, batches)) <= 1000


@pytest.mark.parametrize("price", ["0", "0.0001", "5.00", "100", "19.99", "99999999999.9999"])
def test_a_list_is_written_as_its_products_are(catalog: Catalog, price: str) -> None:
    """A list that goes from the database to JSON is the text that its products are written as, whatever their names."""
    for name in ("Tea", "1E+5"):
        catalog.create(ProductDraft(sku=name, name=name, price=Decimal(price), stock=1))
    assert [encode(batch) for batch in catalog.lines()] == [encode(batch) for batch in catalog.batches()]


def test_products_encode_as_objects(catalog: Catalog) -> None:
    """A product can be sent as it is."""
    created = catalog.create(draft("a"))
    assert json.loads(encode(created)) == {"id": created.id, "sku": "a", "name": "Tea", "price": 19.99, "stock": 1}
