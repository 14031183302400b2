"""Faults at bad moments: lost commits, shared commits, and waits that time out."""

from __future__ import annotations

import gc
import select
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.conftest import PRODUCTS, Declare
from tests.stores.test_rows import INSERT, add, skus

from plughost.stores import Busy, OpenStore, OutcomeUnknown, Session, StoreError, Unavailable, http_error
from plughost.stores._databases import database_for
from plughost.stores._errors import Damaged
from plughost.stores._manager import Stores, check
from plughost.stores._sqlite_writer import Writer

if TYPE_CHECKING:
    from tests.stores.proxy import Proxy

    from plughost import Store
    from plughost.stores._config import StoresConfig

PARTS = """
CREATE TABLE parts (number INTEGER UNIQUE, product BIGINT REFERENCES products (id) DEFERRABLE INITIALLY DEFERRED);
"""


def test_a_commit_whose_answer_is_lost_is_looked_up(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy
) -> None:
    """The transaction was committed, and the caller learns that."""
    store = opening(through_proxy, plain_products)["catalog"]
    proxy.cut_after = b"COMMIT"
    assert store.run(add, "a") > 0
    proxy.cut_after = None
    assert store.read(skus) == ["a"]


@pytest.mark.parametrize("last", [b"INSERT", b"SELECT txid_current"])
def test_a_transaction_that_did_not_reach_its_commit_is_repeated(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy, last: bytes
) -> None:
    """If its only statement was lost, nothing of it can be stored, however often that happens."""
    store = opening(through_proxy, plain_products)["catalog"]
    attempts: list[int] = []

    def add_once(session: Session) -> int:
        attempts.append(1)
        proxy.cut_after = last if len(attempts) < 4 else None
        return add(session, "a")

    store.run(add_once)
    assert (len(attempts), store.read(skus)) == (4, ["a"])


def test_a_write_with_an_unknown_outcome_says_so(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy
) -> None:
    """This is a single statement whose answer is lost, or a commit after which the server can't be asked."""
    store = opening(replace(through_proxy, patience=0.5), plain_products)["catalog"]
    proxy.cut_after = b"INSERT"
    with pytest.raises(OutcomeUnknown) as caught:
        store.single(add, "single")
    answer = http_error(caught.value)
    assert (answer.status_code, answer.title) == (503, "Outcome Unknown")
    assert "may have been done" in (answer.description or "")
    assert "Retry-After" not in dict(answer.headers or {})
    proxy.cut_after = b"COMMIT"

    def add_and_lose_the_server(session: Session) -> None:
        add(session, "commit")
        threading.Timer(0, proxy.stop_accepting).start()

    with pytest.raises(OutcomeUnknown) as lost:
        store.run(add_and_lose_the_server)
    assert "\n" not in f"{caught.value}{lost.value}", "a message of several lines from PostgreSQL is reported in one"
    proxy.cut_after = None
    proxy.mend()
    assert store.read(skus) == ["commit", "single"]


def test_broken_connections_are_dropped(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy
) -> None:
    """A host that runs for months keeps none of them, and watches none that is unused."""
    store = opening(through_proxy, plain_products)["catalog"]
    broken: list[weakref.ref[Any]] = []

    def lose(session: Session) -> None:
        broken.append(weakref.ref(session.connection))
        proxy.drop()

    for _ in range(3):
        store.read(lose)
    assert store.read(skus) == []
    gc.collect()
    assert [each() for each in broken] == [None] * 3


def test_a_missing_table_is_reported(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, wait_for: Callable[..., None]
) -> None:
    """The store counts as damaged, not the plugin as faulty; its check says so, and it recovers with the table."""
    store = opening(config, plain_products)["catalog"]
    store.run(add, "a")
    with store.database.administer() as db:
        db.script("ALTER TABLE products RENAME TO away")
    for operation, args in ((store.read, (skus,)), (store.run, (add, "b")), (store.read, (skus,))):
        with pytest.raises(Damaged, match="no table products any more"):
            operation(*args)
    assert not check(store).up
    with store.database.administer() as db:
        db.script("ALTER TABLE away RENAME TO products")
    wait_for(lambda: check(store).up)
    assert store.read(skus) == ["a"]


def test_an_operation_begun_before_the_loss_of_a_table_reports_the_same(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """Another thread has closed the store meanwhile, which doesn't turn this into a defect of the plugin."""
    store = opening(sqlite_config, plain_products)["catalog"]
    together = threading.Barrier(2, timeout=30)

    def late(_: Session) -> None:
        together.wait()
        together.wait()
        raise sqlite3.OperationalError("no such table: products")

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(store.read, late)
        together.wait()
        with store.database.administer() as db:
            db.script("ALTER TABLE products RENAME TO away")
        for _ in range(2):  # the first one detects the loss, the second one closes the store
            with pytest.raises(Damaged):
                store.read(skus)
        together.wait()
        assert isinstance(reading.exception(), Damaged)


def test_a_write_that_the_server_timed_out_is_not_repeated(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store
) -> None:
    """It would take as long once more."""
    store = opening(replace(through_proxy, patience=20, statement_timeout=0.2), plain_products)["catalog"]
    attempts: list[int] = []

    def sleep(session: Session) -> None:
        attempts.append(1)
        session.rows("SELECT pg_sleep(30)")

    for operation in (store.run, store.read, store.single):
        with pytest.raises(Busy):
            operation(sleep)
    assert len(attempts) == 3


@pytest.mark.parametrize("closes", ["never", "early", "late"])
@pytest.mark.parametrize("method", ["read", "run"])
def test_an_operation_that_the_host_cut_off_is_not_repeated(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, method: str, closes: str
) -> None:
    """It would take as long once more; it is also cut off if its store was closed meanwhile, as by a reload."""
    store = opening(replace(through_proxy, patience=0.2, statement_timeout=0.4), plain_products)["catalog"]
    attempts: list[int] = []

    def take_long(session: Session) -> None:
        attempts.append(1)
        if closes == "early":
            store.close()
        connection = session.connection
        if closes == "late":
            store.close()
        select.select([connection], [], [], 30)  # until it is cut off
        skus(session)

    with pytest.raises(Unavailable, match="took too long"):
        getattr(store, method)(take_long)
    assert len(attempts) == 1


def test_a_cancelled_read_is_repeated(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store
) -> None:
    """A cancellation by an operator is not taken for the server's time limit; a cancelled write is busy."""
    store = opening(replace(through_proxy, patience=20), plain_products)["catalog"]
    attempts: list[int] = []

    def cancelled_once(session: Session) -> list[str]:
        attempts.append(1)
        if len(attempts) % 2:
            session.rows("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(30)")
        return skus(session)

    assert (store.read(cancelled_once), len(attempts)) == ([], 2)
    with pytest.raises(Busy):
        store.run(cancelled_once)
    assert len(attempts) == 3


@contextmanager
def held(config: StoresConfig) -> Iterator[None]:
    """Lock what writers of products need, over a foreign connection."""
    with database_for("catalog", config.of("catalog")).administer() as other:
        other.script("BEGIN IMMEDIATE;" if config.url is None else "BEGIN; LOCK TABLE products")
        yield


def test_a_store_locked_for_too_long_is_reported(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, log_lines: list[dict[str, Any]]
) -> None:
    """However many operations fail, one event at intervals names the plugin, its store, the place and the cause."""
    store = opening(config, plain_products)["catalog"]
    log_lines.clear()
    with held(config):
        for operation in (store.single, store.run, store.single):
            with pytest.raises(Busy):
                operation(add, "a")
    store.single(add, "a")
    (line,) = log_lines
    assert (line["event"], line["store"], line["plugin"]) == ("the store is busy", "catalog", "catalog-plugin")
    assert "lock" in line["reason"]
    assert line["place"] == config.of("catalog").place


@pytest.mark.parametrize("busy", ["store", "pool"])
def test_a_timed_out_wait_leaves_the_queue(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, busy: str
) -> None:
    """After a time-out, for a connection or for a write, the next waiting operation proceeds."""
    store = opening(replace(config, pool_size=1), plain_products)["catalog"]
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "held") if busy == "store" else skus(session)
        holds.set()
        go_on.wait(30)

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(store.run if busy == "store" else store.read, hold)
        assert holds.wait(30)
        for _ in range(2):
            with pytest.raises(Busy):
                store.single(add, "in vain") if busy == "store" else store.read(skus)
        go_on.set()
        holding.result()
    store.single(add, "next")
    assert store.read(skus) == (["held", "next"] if busy == "store" else ["next"])
    assert store.figures["connections_in_use"] == 0


def test_a_running_write_is_not_reported_as_busy(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store, wait_for: Callable[..., None]
) -> None:
    """If another thread already runs the statement, the waiting caller learns its outcome."""
    store = opening(replace(sqlite_config, patience=2), plain_products)["catalog"]
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "held")
        holds.set()
        go_on.wait(30)

    def add_slowly(session: Session) -> int:
        def last(cursor: sqlite3.Cursor) -> int:
            waited = store.figures["lock_waits"]
            wait_for(lambda: store.figures["lock_waits"] > waited)  # the other one's time is over
            return cursor.lastrowid or 0

        return session.execute(last, INSERT, ("slow", 1, 1))

    queue = _writer(store).slots.queue
    with ThreadPoolExecutor(3) as threads:
        holding = threads.submit(store.run, hold)
        assert holds.wait(30)
        slow = threads.submit(store.single, add_slowly)
        wait_for(lambda: len(queue) == 1)
        other = threads.submit(store.single, add, "other")
        wait_for(lambda: len(queue) == 2)
        go_on.set()
        holding.result()
        assert [slow.result(), other.result()] == [2, 3]
    assert store.read(skus) == ["held", "other", "slow"]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT OR ROLLBACK INTO products (sku, price, stock) VALUES ('held', 1, 1)", "UNIQUE"),
        ("INSERT INTO parts (number, product) VALUES (1, 0)", "FOREIGN KEY"),
    ],
    ids=["at once", "at the commit"],
)
def test_a_statement_that_rolls_back_its_shared_commit_is_refused_alone(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    declare: Declare,
    wait_for: Callable[..., None],
    *,
    statement: str,
    reason: str,
) -> None:
    """As on a full disk, the other statements are repeated without it, and each is stored once."""
    declared = declare(PRODUCTS, PARTS, entities=None, tables=("products", "parts"))
    store = opening(replace(sqlite_config, patience=30), declared)["catalog"]
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "held")
        holds.set()
        go_on.wait(30)

    refused, part = (Session.change, statement), (Session.change, "INSERT INTO parts (number, product) VALUES (1, 1)")
    operations: list[tuple[Callable[..., int], str]] = [(add, "a"), refused, (add, "b"), refused, part]
    queue = _writer(store).slots.queue
    with ThreadPoolExecutor(6) as threads:
        holding = threads.submit(store.run, hold)
        assert holds.wait(30)
        together = []
        for operation, argument in operations:
            together.append(threads.submit(store.single, operation, argument))
            wait_for(lambda: len(queue) == len(together))
        go_on.set()
        holding.result()
        for each in together[1::2]:
            with pytest.raises(StoreError, match=reason):
                each.result()
        assert [each.result() for each in together[::2]] == [2, 3, 1]
    assert store.read(skus) == ["a", "b", "held"]
    assert store.read(Session.rows, "SELECT number, product FROM parts") == [(1, 1)]
    store.single(add, "next")


def test_a_transaction_refused_at_its_commit_is_rolled_back(
    opening: Callable[..., Stores], config: StoresConfig, declare: Declare
) -> None:
    """If a deferred constraint fails, nothing is stored, and the next transaction is a new one."""
    declared = declare(PRODUCTS, PARTS, entities=None, tables=("products", "parts"))
    store = opening(replace(config, pool_size=1), declared)["catalog"]
    add_part = "INSERT INTO parts (number, product) VALUES (1, 0)"
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.run(lambda session: [add(session, "undone"), session.change(add_part)])
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.single(Session.change, add_part)
    store.single(add, "a")
    store.run(add, "b")
    assert store.read(skus) == ["a", "b"]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_ended_from_inside_is_refused(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, end: str
) -> None:
    """The caller doesn't get a success for it, and other writes continue."""
    store = opening(config, plain_products)["catalog"]
    with pytest.raises(StoreError, match="ended from inside"):
        store.run(lambda session: [add(session, "a"), session.rows(end)])
    store.run(add, "b")
    assert store.read(skus) == (["a", "b"] if end == "COMMIT" else ["b"])


def _writer(store: OpenStore[Session]) -> Writer:
    opened = store._availability.handle
    assert opened is not None
    writer = opened.sessions.writer  # type: ignore[union-attr] # it is SQLite
    assert isinstance(writer, Writer)
    return writer
