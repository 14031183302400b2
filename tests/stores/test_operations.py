"""Operations: values, errors and rules are the same on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from pony import orm
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count, get, skus, take_one

from plughost.stores import Busy, Duplicate, MisusedStore, OpenStore, StoreError, Unavailable
from plughost.stores._config import StoresConfig

if TYPE_CHECKING:
    from plughost._api.declarations import Store
    from plughost.stores._manager import Stores


@pytest.mark.parametrize("sku", ["", " ", " a ", "a/b", "ä\u200b😀", "\n", "%", "'; --", "$x"])
def test_strings_are_stored_unchanged(store: OpenStore[Any], sku: str) -> None:
    """Spaces, quotes and an empty name stay as they are."""
    store.run(add, sku or "empty", name=sku)
    assert store.read(get, sku or "empty") == (sku or "empty", sku, Decimal("19.99"), 1)


@pytest.mark.parametrize("sku", ["a\0b", "a\ud800b"], ids=["NUL", "lone surrogate"])
def test_a_string_that_cannot_be_stored_is_a_value_error(store: OpenStore[Any], sku: str) -> None:
    """Both databases refuse it, and neither stores a part of it."""
    with pytest.raises(ValueError, match=r"NUL|surrogates"):
        store.run(add, sku)
    assert store.read(count) == 0


def test_integers_have_64_bits(store: OpenStore[Any]) -> None:
    """The largest is stored exactly, and a larger one is a value error."""
    store.run(add, "a", stock=2**63 - 1)
    assert store.read(get, "a") == ("a", "", Decimal("19.99"), 2**63 - 1)
    with pytest.raises(ValueError, match="stock"):
        store.run(add, "b", stock=2**63)


@pytest.mark.parametrize("price", ["0", "0.0001", "19.99", "12345678901.2345", "99999999999.9999"])
def test_decimals_are_exact_to_15_digits(store: OpenStore[Any], price: str) -> None:
    """A value with 11 and 4 digits is returned unchanged."""
    store.run(add, "a", price=Decimal(price))
    assert store.read(get, "a") == ("a", "", Decimal(price), 1)


def test_a_duplicate_names_its_column_and_rolls_back_the_operation(store: OpenStore[Any]) -> None:
    """Nothing of an operation is stored if its last part is refused."""

    def add_two(db: Any) -> None:
        add(db, "new")
        add(db, "old")

    store.run(add, "old")
    with pytest.raises(Duplicate) as caught:
        store.run(add_two)
    assert caught.value.columns == ("sku",)
    assert store.read(skus) == ["old"]


def test_a_duplicate_primary_key_is_reported_as_such(store: OpenStore[Any]) -> None:
    """A used id is distinguished from a used SKU."""
    taken = store.run(add, "a")
    with pytest.raises(Duplicate) as caught:
        store.run(lambda db: db.Product(id=taken, sku="b", price=Decimal(1), stock=1) and None)
    assert caught.value.columns == ("id",)


def test_a_duplicate_within_one_session_is_a_duplicate(store: OpenStore[Any]) -> None:
    """Pony's own cache finds it before the database does, with another error."""

    def add_twice(db: Any) -> None:
        for _ in range(2):
            db.Product(sku="a", price=Decimal(1), stock=1)

    with pytest.raises(Duplicate):
        store.run(add_twice)


def test_another_violated_constraint_is_no_duplicate(store: OpenStore[Any]) -> None:
    """A forbidden NULL is a plain store error."""
    with pytest.raises(StoreError) as caught:
        store.run(lambda db: db.execute("INSERT INTO products (sku, price) VALUES ('a', 1)") and None)
    assert type(caught.value) is StoreError


def test_an_exception_of_the_operation_rolls_back_and_is_passed_on(store: OpenStore[Any]) -> None:
    """The plugin's own exception arrives unchanged."""

    def add_and_fail(db: Any) -> None:
        add(db, "a")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        store.run(add_and_fail)
    assert store.read(count) == 0


def test_a_read_that_writes_is_refused(store: OpenStore[Any]) -> None:
    """Neither an entity nor raw SQL can write in a read."""
    store.run(add, "a")
    for operation in (
        lambda db: add(db, "b"),
        lambda db: take_one(db, "a"),
        lambda db: db.execute("DELETE FROM products") and None,
    ):
        with pytest.raises(MisusedStore, match="use run"):
            store.read(operation)
    assert store.read(get, "a") == ("a", "", Decimal("19.99"), 1)


@pytest.mark.parametrize(
    "operation",
    [
        lambda db: db.Product.get(sku="a"),
        lambda db: db.Product.select(),
        lambda db: db.Product.select()[:],
        lambda db: [db.Product.get(sku="a")],
        lambda db: (sku for sku in "ab"),
    ],
    ids=["entity", "query", "result", "list of entities", "generator"],
)
def test_pony_objects_cannot_leave_an_operation(store: OpenStore[Any], operation: Callable[[Any], object]) -> None:
    """An object that is unusable outside of its session is refused at once."""
    store.run(add, "a")
    with pytest.raises(MisusedStore, match="plain values"):
        store.read(operation)


def test_an_operation_inside_another_is_refused(store: OpenStore[Any]) -> None:
    """The outer operation is rolled back, and the store is usable afterwards."""

    def add_and_nest(db: Any) -> None:
        add(db, "a")
        store.read(count)

    with pytest.raises(MisusedStore, match="inside one of the store catalog"):
        store.run(add_and_nest)
    assert store.read(count) == 0


def test_threads_that_nest_two_stores_in_opposite_order_are_refused_and_do_not_hang(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """Raw Pony would wait for ever; both threads get an error that names both stores."""
    notes = declare("CREATE TABLE notes (id {identity});", name="notes", tables=("notes",))
    stores = opening(config, products, notes)
    both_inside = threading.Barrier(2, timeout=30)

    def nest(outer: str, inner: str) -> str:
        def operation(db: Any) -> None:
            db.select("SELECT 1")
            both_inside.wait()
            stores[inner].run(lambda db: None)

        with pytest.raises(MisusedStore) as caught:
            stores[outer].run(operation)
        return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        one, two = threads.submit(nest, "catalog", "notes"), threads.submit(nest, "notes", "catalog")
    assert "store notes was begun inside one of the store catalog" in one.result()
    assert "store catalog was begun inside one of the store notes" in two.result()


def test_entities_of_another_store_are_refused(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """An operation that uses them is rolled back in both stores."""
    other = declare(
        PRODUCTS.replace("products", "others"),
        name="other",
        entities=lambda db: product_entities_named(db, "others"),
        tables=("others",),
    )
    stores = opening(config, products, other)
    smuggled: list[Any] = []
    stores["other"].read(smuggled.append)

    def add_to_both(db: Any) -> None:
        add(db, "a")
        add(smuggled[0], "a")

    with pytest.raises(MisusedStore, match="Entities of the store other were used in an operation of the store c"):
        stores["catalog"].run(add_to_both)
    assert (stores["catalog"].read(count), stores["other"].read(count)) == (0, 0)


def product_entities_named(db: Any, table: str) -> Any:
    """Define the entities of products with another table name."""
    product_entities(db)
    db.Product._table_ = table
    return db


def test_a_session_of_ponys_own_is_refused(store: OpenStore[Any]) -> None:
    """Pony's `db_session` would bypass every rule."""
    smuggled: list[Any] = []
    store.read(smuggled.append)
    with orm.db_session, pytest.raises(MisusedStore, match="Pony"):
        count(smuggled[0])


def test_batches_yield_every_row_once_without_an_open_session(store: OpenStore[Any]) -> None:
    """While a list streams, the same thread may write, and new rows beyond the last key are included."""

    def after(db: Any, last: str | None, limit: int) -> list[str]:
        return list(orm.select(p.sku for p in db.Product if p.sku > (last or "")).order_by(1).limit(limit))

    for number in range(5):
        store.run(add, f"sku {number}")
    seen: list[str] = []
    for batch in store.batches(after, key=str, size=2):
        assert 1 <= len(batch) <= 2
        if not seen:
            store.run(add, "sku 9")
        seen += batch
    assert seen == ["sku 0", "sku 1", "sku 2", "sku 3", "sku 4", "sku 9"]


def test_threads_that_read_modify_and_write_lose_nothing(store: OpenStore[Any]) -> None:
    """Conflicting operations are repeated until each took effect once."""
    store.run(add, "a", stock=40)
    with ThreadPoolExecutor(8) as threads:
        left = list(threads.map(lambda _: _take_patiently(store), range(40)))
    assert sorted(left) == list(range(40))


def _take_patiently(store: OpenStore[Any]) -> int:
    while True:
        try:
            return store.run(take_one, "a")
        except Busy:
            continue


def test_many_threads_read_and_write_concurrently(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """Concurrent creates of one SKU have one success, creates of distinct SKUs all succeed, and reads continue."""
    store = opening(replace(config, patience=30), products)["catalog"]

    def work(number: int) -> bool:
        store.run(add, f"mine {number}")
        store.read(skus)
        try:
            store.run(add, "everyone's")
        except Duplicate:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(work, range(40))) == 1
    assert store.read(count) == 41


def test_an_operation_that_loses_a_race_is_repeated(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Any, products: Store
) -> None:
    """On PostgreSQL, a change of a row after its read repeats the operation."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql), products)["catalog"]
    store.run(add, "a", stock=10)
    attempts: list[int] = []

    def take_after_another(db: Any) -> int:
        stock = db.Product.get(sku="a").stock
        attempts.append(stock)
        if len(attempts) == 1:
            other = threading.Thread(target=store.run, args=(take_one, "a"))
            other.start()
            other.join()
        return take_one(db, "a")

    assert store.run(take_after_another) == 8
    assert attempts == [10, 9]


def test_a_writer_waits_with_a_time_out_and_readers_never(store: OpenStore[Any]) -> None:
    """A writer that never ends makes other writers busy; none waits for ever."""
    holds, done = threading.Event(), threading.Event()
    store.run(add, "a")

    def hold(db: Any) -> None:
        take_one(db, "a")
        db.flush()
        holds.set()
        done.wait(30)

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(store.run, hold)
        assert holds.wait(30)
        try:
            with pytest.raises(Busy):
                store.run(take_one, "a")
            assert store.read(get, "a") == ("a", "", Decimal("19.99"), 1)
        finally:
            done.set()
        holding.result()
    assert store.read(get, "a") == ("a", "", Decimal("19.99"), 0)


def test_operations_wait_while_their_store_is_paused(
    opening: Callable[..., Stores],
    config: StoresConfig,
    products: Store,
    wait_for: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pause begins when running operations have ended, has no open connection, and then admits waiting ones once."""
    store = opening(replace(config, patience=3600), products)["catalog"]
    inside, paused = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)
    refused = Mock(wraps=store._gate.end)

    def stay(db: Any) -> int:
        inside.wait()
        wait_for(lambda: store._gate.refusal)
        return add(db, "inside")

    def pause() -> None:
        inside.wait()
        with store.paused():
            assert store.figures == {}
            monkeypatch.setattr(store._gate, "end", refused)
            paused.wait()
            wait_for(lambda: refused.called)  # by the waiting operation

    def add_and_nest(db: Any) -> None:
        add(db, "came")
        with pytest.raises(MisusedStore, match="inside one of"):
            store.read(count)

    def come() -> None:
        paused.wait()
        store.run(add_and_nest)

    with ThreadPoolExecutor(3) as threads:
        staying, pausing, coming = threads.submit(store.run, stay), threads.submit(pause), threads.submit(come)
        assert (staying.result(), pausing.result(), coming.result()) == (1, None, None)
    assert store.read(skus) == ["came", "inside"]


def test_a_timed_out_pause_or_operation_is_busy(store: OpenStore[Any]) -> None:
    """Neither leaves the store paused, or its thread counted as inside an operation."""
    holds, done = threading.Event(), threading.Event()

    def hold(db: Any) -> int:
        holds.set()
        done.wait(30)
        return count(db)

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(store.read, hold)
        assert holds.wait(30)
        try:
            with pytest.raises(Busy, match="took longer than"), store.paused():
                pytest.fail("somebody is inside")
            store.run(add, "a")
        finally:
            done.set()
        assert holding.result() == 1
    with store.paused(), pytest.raises(Busy, match="is being migrated"):
        store.run(add, "b")
    store.run(add, "c")
    assert store.read(skus) == ["a", "c"]


def test_a_closed_store_says_so(store: OpenStore[Any]) -> None:
    """An operation after the end is an error and opens no new connection."""
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.read(count)
    assert store.state == "closed"


@pytest.mark.parametrize(
    ("pragma", "expected"),
    [("max_page_count = 10", Unavailable), ("query_only = ON", Unavailable)],
    ids=["disk full", "read-only"],
)
def test_a_full_or_read_only_disk_is_unavailable(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, pragma: str, expected: type
) -> None:
    """SQLite's own limits raise the same errors as a full or read-only disk."""

    def fill(db: Any) -> None:
        db.execute(f"PRAGMA {pragma}")
        for number in range(200):
            add(db, f"{number}", name="x" * 250)

    with pytest.raises(expected):
        opening(sqlite_config, products)["catalog"].run(fill)
