"""Operations on rows, of stores without entities, on each database."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.operations import add as add_entity

from plughost.stores import Busy, Duplicate, MisusedStore, OpenStore, Session, StoreError

if TYPE_CHECKING:
    from plughost import Store
    from plughost.stores._config import StoresConfig
    from plughost.stores._manager import Stores

INSERT = "INSERT INTO products (sku, price, stock) VALUES (?, ?, ?)"


@dataclass(frozen=True)
class Stock:
    """A record."""

    sku: str
    stock: int


def add(session: Session, sku: str, stock: int = 1) -> int:
    """Add a product and return its id."""
    return session.insert(INSERT, sku, Decimal("19.99"), stock)


def skus(session: Session) -> list[str]:
    """Return all SKUs."""
    return [sku for (sku,) in session.rows("SELECT sku FROM products ORDER BY sku")]


@pytest.fixture
def store(opening: Callable[..., Stores], config: StoresConfig, plain_products: Store) -> OpenStore[Session]:
    """An open store of products, without entities."""
    return opening(config, plain_products)["catalog"]


def test_values_are_stored_as_tuples_and_records(store: OpenStore[Session]) -> None:
    """They are returned unchanged, question marks in SQL included, whatever characters they have."""
    for sku in ("b", "a%?", "ä'\"\\"):
        store.single(add, sku, 2)
    assert store.read(skus) == ["a%?", "b", "ä'\"\\"]
    assert store.read(Session.row, "SELECT sku, stock FROM products WHERE sku = ?", "a%?") == ("a%?", 2)
    assert store.read(Session.row, "SELECT sku FROM products WHERE sku = ?", "c") is None
    records = store.read(Session.records, Stock, "SELECT sku, stock FROM products WHERE sku LIKE 'a%'")
    assert records == [Stock("a%?", 2)]
    assert store.run(Session.change, "UPDATE products SET stock = stock + ?", 1) == 3


@pytest.mark.parametrize("begin", ["", "-- for the winter\n", "WITH few AS (SELECT 2 AS stock) "])
@pytest.mark.parametrize("end", ["", " RETURNING id"])
def test_changed_rows_are_counted_whatever_the_statement(store: OpenStore[Session], begin: str, end: str) -> None:
    """By itself, Python's sqlite3 doesn't count for what begins with WITH, or before the last row is taken."""
    for sku in ("a", "b", "c"):
        store.single(add, sku, 2)
    sql = f"{begin}UPDATE products SET stock = 1 WHERE sku < ?{end}"
    assert [store.single(Session.change, sql, sku) for sku in ("c", "a")] == [2, 0]
    assert store.run(Session.change, f"{begin}DELETE FROM products{end}") == 3


def test_an_operation_that_raises_is_rolled_back(store: OpenStore[Session]) -> None:
    """All statements of `run` are one transaction."""

    def add_and_fail(session: Session) -> None:
        add(session, "a")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        store.run(add_and_fail)
    with pytest.raises(Duplicate) as caught:
        store.run(lambda session: [add(session, "b"), add(session, "b")])
    assert caught.value.columns == ("sku",)
    assert store.read(skus) == []


@pytest.mark.parametrize("write", [add, lambda session, sku: session.change("DELETE FROM products WHERE sku = ?", sku)])
def test_a_read_that_writes_is_refused_by_the_database(store: OpenStore[Session], write: Callable[..., Any]) -> None:
    """Whatever the SQL says, a read stores nothing, and the error says what to use."""
    store.single(add, "a")
    with pytest.raises(MisusedStore, match="use run"):
        store.read(write, "b" if write is add else "a")
    assert store.read(skus) == ["a"]


def test_a_single_operation_is_one_statement(store: OpenStore[Session]) -> None:
    """A second one is refused, since the first is committed already."""
    with pytest.raises(MisusedStore, match="one statement"):
        store.single(lambda session: [add(session, "a"), add(session, "b")])
    assert store.read(skus) == ["a"]


def test_a_session_is_unusable_after_its_operation(store: OpenStore[Session]) -> None:
    """This holds for a session that read and for one that wrote."""
    kept: list[Session] = []
    store.read(kept.append)
    store.run(kept.append)
    for session in kept:
        with pytest.raises(MisusedStore, match="over"):
            skus(session)
    with pytest.raises(MisusedStore, match="generator"):
        store.read(lambda session: (row for row in session.rows("SELECT 1")))


@pytest.mark.parametrize("values", [("a",), ("a", 1, 2)])
def test_a_wrong_number_of_values_is_a_store_error(store: OpenStore[Session], values: tuple[object, ...]) -> None:
    """The error is of the same class on each database, and gives both numbers."""
    with pytest.raises(StoreError, match=rf"(?s)2.*{len(values)}"):
        store.read(Session.rows, "SELECT 1 FROM products WHERE sku = ? AND stock = ?", *values)


@pytest.mark.parametrize("value", ["a\0b", "\ud800", 2**63, -(2**63) - 1, Decimal("NaN"), Decimal("Infinity")])
def test_a_value_that_no_column_can_hold_is_a_value_error(store: OpenStore[Session], value: Any) -> None:
    """The error is the same on each database, whether the value is stored or searched for."""
    with pytest.raises(ValueError):
        store.read(Session.rows, "SELECT 1 FROM products WHERE sku = ?", value)
    with pytest.raises(ValueError):
        store.single(Session.change, "UPDATE products SET sku = ?", value)


def test_decimals_and_times_can_be_stored(store: OpenStore[Session]) -> None:
    """SQLite stores them as numbers and text, and both databases return the same values."""
    moment = datetime(2026, 11, 22, 1, 2, 3)
    store.run(Session.insert, "INSERT INTO products (sku, price, stock) VALUES (?, ?, 1)", "a", Decimal("0.1"))
    (price, found) = store.read(Session.row, "SELECT price, CAST(? AS VARCHAR(40)) FROM products", moment) or ()
    assert (Decimal(str(price)).normalize(), datetime.fromisoformat(found)) == (Decimal("0.1"), moment)


@pytest.mark.parametrize("value", [b"", b"\0\xff\\x41", None])
def test_binary_values_are_returned_as_bytes(store: OpenStore[Session], value: bytes | None) -> None:
    """A part of a streamed body has to be `bytes`, and neither a buffer of the driver nor a text."""
    kind = {"sqlite": "BLOB", "postgresql": "BYTEA"}[store.dialect]
    (found,) = store.read(Session.row, f"SELECT CAST(? AS {kind})", value) or ()
    assert (type(found), found) == (type(value), value)


def test_times_of_different_zones_are_compared_as_moments(store: OpenStore[Session]) -> None:
    """13:30 in Berlin comes before 12:00 in UTC and equals 11:30 there, also where times are text."""
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    earlier = datetime(2026, 7, 1, 13, 30, tzinfo=timezone(timedelta(hours=2)))
    values = (earlier, noon, earlier, noon - timedelta(minutes=30))
    assert store.read(Session.row, "SELECT ? < ?, ? = ?", *values) == (True, True)
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))  # in UTC, the year before
    assert store.read(Session.row, "SELECT ? < ?", first, noon) == (True,)


def test_concurrent_single_statements_are_each_stored_or_refused(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """Statements that share a commit fail independently."""
    # With patience, since twelve threads with five connections to a slow disk soon find it busy.
    store: OpenStore[Session] = opening(replace(config, patience=60), plain_products)["catalog"]

    def create(number: int) -> int | None:
        try:
            return store.single(add, f"sku {number % 30}")
        except Duplicate:
            return None

    with ThreadPoolExecutor(12) as threads:
        ids = [each for each in threads.map(create, range(60)) if each is not None]
    assert len(ids) == len(set(ids)) == 30
    assert len(store.read(skus)) == 30


def test_waiting_single_statements_share_a_commit(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """Statements that queue behind a transaction are committed together: the file has one commit for all."""
    store: OpenStore[Session] = opening(sqlite_config, plain_products)["catalog"]
    store.single(add, "zero")
    log = sqlite_config.folder / "catalog.sqlite3-wal"
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "first")
        holds.set()
        assert go_on.wait(30)

    waited = store.figures["lock_waits"]
    before = log.stat().st_size
    with ThreadPoolExecutor(9) as threads:
        holding = threads.submit(store.run, hold)
        assert holds.wait(30)
        together = [threads.submit(store.single, add, f"sku {number}") for number in range(8)]
        while len(store._availability.handle.sessions.writer.slots.queue) < 8:  # type: ignore[union-attr]  # it is SQLite, and open
            threading.Event().wait(0.001)
        go_on.set()
        holding.result()
        assert len({each.result() for each in together}) == 8
    assert store.figures["lock_waits"] == waited + 8
    frames = (log.stat().st_size - before) // (4096 + 24)
    assert frames < 2 * 8, "each commit writes a page of the table and one of its index at least"


def test_a_writer_waits_as_long_as_it_is_allowed_to(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """A locked row or file is waited for once: the operation is not repeated afterwards."""
    store: OpenStore[Session] = opening(config, plain_products)["catalog"]
    store.single(add, "a")
    attempts: list[int] = []
    holds, done = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        session.change("UPDATE products SET stock = 5")
        holds.set()
        done.wait(30)

    def change(session: Session) -> None:
        attempts.append(1)
        session.change("UPDATE products SET stock = 6")

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(store.run, hold)
        assert holds.wait(30)
        for operation in (store.run, store.single):
            with pytest.raises(Busy):
                operation(change)
        done.set()
        holding.result()
    assert attempts == [1, 1]
    assert store.figures["lock_waits"] == 2
    assert store.figures["lock_wait_seconds"] > 0


def test_a_wait_for_another_process_is_counted(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """On SQLite, a wait for the file's lock counts like a wait in this process's queue."""
    store: OpenStore[Session] = opening(sqlite_config, plain_products)["catalog"]
    with closing(sqlite3.connect(sqlite_config.folder / "catalog.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            store.single(add, "a")
    assert store.figures["lock_waits"] >= 1
    assert store.figures["lock_wait_seconds"] >= sqlite_config.patience / 2


def test_entities_and_rows_share_a_transaction(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """`db.session` sees the entities' changes, and both are rolled back together."""
    store: OpenStore[Any] = opening(config, products)["catalog"]

    def both(db: Any, *, fail: bool) -> list[Any]:
        add_entity(db, "entity")
        db.Product(sku="unflushed", price=Decimal(1), stock=1)
        db.session.insert("INSERT INTO products (sku, name, price, stock) VALUES (?, '', 1, 1)", "row")
        if fail:
            raise KeyError
        return [sku for (sku,) in db.session.rows("SELECT sku FROM products ORDER BY sku")]

    with pytest.raises(KeyError):
        store.run(both, fail=True)
    assert store.read(lambda db: db.session.rows("SELECT 1 FROM products")) == []
    assert store.run(both, fail=False) == ["entity", "row", "unflushed"]
    with pytest.raises(MisusedStore, match="use run"):
        store.read(lambda db: db.session.change("DELETE FROM products"))


def test_a_swallowed_error_leaves_nothing_half_stored(store: OpenStore[Session]) -> None:
    """On PostgreSQL the rest of the transaction is refused; on SQLite only the statement is rolled back."""

    def swallow(session: Session) -> None:
        add(session, "a")
        with suppress(Exception):  # an author's mistake
            add(session, "a")

    if store.dialect == "sqlite":
        store.run(swallow)
        assert store.read(skus) == ["a"]
    else:
        with pytest.raises(StoreError):
            store.run(swallow)
        assert store.read(skus) == []


def test_an_operation_may_continue_after_its_own_rollback(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """After Pony's `rollback`, a new transaction begins, and is stored."""
    store: OpenStore[Any] = opening(config, products)["catalog"]

    def undo_one(db: Any) -> None:
        add_entity(db, "undone")
        db.rollback()
        add_entity(db, "kept")

    store.run(undo_one)
    assert store.read(lambda db: db.session.rows("SELECT sku FROM products")) == [("kept",)]


def test_pony_is_imported_only_for_entities(tmp_path: Any, plain_products: Store) -> None:
    """A host whose stores have no entities runs without it."""
    folder = plain_products.migrations
    code = f"""
import sys
from pathlib import Path
from plughost import Store
from plughost.stores import Session
from plughost.stores._config import StoresConfig
from plughost.stores._manager import open_stores
store = Store(name="catalog", migrations=Path({str(folder)!r}), tables=("products",))
stores = open_stores({{"p": (store,)}}, StoresConfig(folder=Path({str(tmp_path)!r})))
stores["catalog"].read(Session.rows, "SELECT * FROM products")
stores.close()
print("pony" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
