"""How long operations wait for an unavailable store, and what is kept open of an available one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count
from tests.stores.test_rows import add as insert
from tests.stores.test_rows import skus

from plughost.stores import OpenStore, Session, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._errors import ConnectionLost, Damaged
from plughost.stores._manager import Stores, check

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from plughost._api.declarations import Store

PARTS = "CREATE TABLE parts (number INTEGER);"
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
SOON = 20.0
"""Seconds within which is answered who doesn't wait for the patience of a store, which is twice as long here."""


def test_a_store_that_was_never_available_is_not_waited_for(
    opening: Callable[..., Stores], tmp_path: Path, psycopg2: ModuleType, products: Store
) -> None:
    """Only one that was just lost may soon be back."""
    config = StoresConfig(folder=tmp_path, url=NOWHERE, patience=2 * SOON, pause=0)
    store = opening(config, products)["catalog"]
    with ThreadPoolExecutor(1) as thread, pytest.raises(Unavailable):
        thread.submit(store.read, count).result(SOON)


def test_a_damaged_store_is_not_waited_for(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """Somebody has to repair it first."""
    store = opening(replace(config, patience=2 * SOON), products)["catalog"]
    with store.database.administer() as db:
        db.script("DROP TABLE products")
    with ThreadPoolExecutor(1) as thread:
        for _ in range(2):
            with pytest.raises(Damaged, match="no table products any more"):
                thread.submit(store.read, count).result(SOON)


def test_a_repaired_store_opens_while_many_operations_are_refused(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """A refusal is not taken for another loss, which would end the attempt to open the store."""
    store = opening(replace(config, pause=0), products)["catalog"]
    ended = threading.Event()

    def read_on() -> int:
        while True:
            try:
                return store.read(count)
            except Damaged:
                if ended.is_set():
                    raise

    with store.database.administer() as db:
        db.script("ALTER TABLE products RENAME TO away")
    with ThreadPoolExecutor(8) as threads:
        readers = [threads.submit(read_on) for _ in range(8)]
        try:
            wait_for(lambda: store.state == "unavailable")
            with store.database.administer() as db:
                db.script("ALTER TABLE away RENAME TO products")
            assert [reader.result(SOON) for reader in readers] == [0] * 8
        finally:
            ended.set()


class Reopened:
    """A store that is reopened after damage, as far as its entities, which are defined once `go_on` is set."""

    def __init__(self, opening: Callable[..., Stores], config: StoresConfig, declare: Declare) -> None:
        self.is_damaged, self.reached, self.go_on = threading.Event(), threading.Event(), threading.Event()
        declared = declare(PRODUCTS + PARTS, entities=self.define, tables=("products", "parts"))
        self.store = opening(config, declared)["catalog"]

    def define(self, db: Any) -> Any:
        """Define the entities."""
        if self.is_damaged.is_set():
            self.reached.set()
            assert self.go_on.wait(SOON)
        return product_entities(db)

    def alter(self, sql: str) -> None:
        """Change the tables."""
        with self.store.database.administer() as db:
            db.script(sql)

    def damage_and_repair(self) -> None:
        """Let an operation find that a table is gone, and bring the table back."""
        self.alter("DROP TABLE parts")
        with pytest.raises(Damaged, match="no table parts"):
            self.store.read(use_parts)
        self.alter(PARTS)
        self.is_damaged.set()


@pytest.fixture
def reopened(opening: Callable[..., Stores], config: StoresConfig, declare: Declare) -> Reopened:
    """A store that was not damaged yet."""
    return Reopened(opening, config, declare)


def use_parts(db: Any) -> Any:
    """Read the table that no entity has."""
    return db.session.rows("SELECT number FROM parts")


def test_damage_found_while_a_store_is_reopened_counts(reopened: Reopened) -> None:
    """The reopening began before that, and does not refute it."""
    begun = threading.Event()

    def find_damage(db: Any) -> None:
        begun.set()
        assert reopened.reached.wait(SOON)
        reopened.alter("DROP TABLE parts")
        use_parts(db)

    with ThreadPoolExecutor(2) as threads:
        early = threads.submit(reopened.store.read, find_damage)
        assert begun.wait(SOON)
        reopened.damage_and_repair()
        late = threads.submit(reopened.store.read, count)
        with pytest.raises(Damaged, match="no table parts"):
            early.result(SOON)
        reopened.go_on.set()
        late.exception(SOON)
    assert "no table parts" in check(reopened.store).data["reason"]


def test_an_operation_that_failed_before_its_store_was_reopened_is_refused(reopened: Reopened) -> None:
    """What it missed is there again, so that its own error would blame the plugin."""
    begun, is_reopened = threading.Event(), threading.Event()

    def fail(db: Any) -> None:
        begun.set()
        assert is_reopened.wait(SOON)
        reopened.alter("DROP TABLE parts")
        try:
            use_parts(db)
        finally:
            reopened.alter(PARTS)

    with ThreadPoolExecutor(1) as thread:
        early = thread.submit(reopened.store.read, fail)
        assert begun.wait(SOON)
        reopened.damage_and_repair()
        reopened.go_on.set()
        assert reopened.store.read(count) == 0
        is_reopened.set()
        with pytest.raises(Unavailable, match="opened anew"):
            early.result(SOON)


def test_a_store_that_is_closed_while_it_is_reopened_stays_closed(reopened: Reopened) -> None:
    """Closing does not wait for the database, and nothing of the store remains open."""
    reopened.damage_and_repair()
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(reopened.store.read, count)
        assert reopened.reached.wait(SOON)
        threads.submit(reopened.store.close).result(SOON / 2)
        reopened.go_on.set()
        assert isinstance(late.exception(SOON), Unavailable)
    with reopened.store.database.exclusive_claim():
        assert reopened.store.state == "closed"


def test_a_store_is_opened_again_as_soon_as_earlier_operations_have_ended(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store, wait_for: Callable[..., None]
) -> None:
    """An operation waits for those that still use the damaged file, and not for the pause, however long."""
    store = opening(replace(sqlite_config, patience=20, pause=3600), plain_products)["catalog"]
    store.single(insert, "before")
    assert store._availability.handle is not None
    sessions = store._availability.handle.sessions
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> list[str]:
        found = skus(session)
        holds.set()
        go_on.wait(30)
        return found

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(store.read, hold)
        assert holds.wait(30)
        (sqlite_config.folder / "catalog.sqlite3-wal").unlink()
        with pytest.raises(Damaged):
            store.single(insert, "refused")
        waiting = threads.submit(store.single, insert, "after")
        wait_for(sessions.closed.is_set)
        go_on.set()
        assert waiting.result() == 2
        assert holding.result() == ["before"]
    assert store.read(skus) == ["after", "before"]


def test_a_store_is_not_tried_again_before_its_pause_is_over(
    opening: Callable[..., Stores], tmp_path: Path, products: Store
) -> None:
    """However many operations come meanwhile, they fail at once with the last attempt's error."""
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file where the folder should be")
    store = opening(StoresConfig(folder=in_the_way / "stores", patience=0.1, pause=3600), products)["catalog"]
    in_the_way.unlink()
    with pytest.raises(Unavailable, match="cannot be"):
        store.read(count)
    assert not in_the_way.exists()


def test_a_later_loss_is_reported_again(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    products: Store,
    log_lines: list[dict[str, Any]],
    wait_for: Callable[..., None],
) -> None:
    """This holds even if no operation has succeeded since the first loss, as the failed one was at fault itself."""
    store = opening(replace(sqlite_config, patience=0.05), products)["catalog"]
    for _ in range(2):
        store._availability.record_loss(ConnectionLost("its server has gone"))
        with pytest.raises(ZeroDivisionError):
            store.read(lambda db: 1 / 0)
        wait_for(store._availability._is_stable)
    assert [line["event"] for line in log_lines[1:]] == ["the store is not available"] * 2


def test_a_health_check_alone_does_not_prove_that_a_store_is_back(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, log_lines: list[dict[str, Any]]
) -> None:
    """Soon after a loss the log says so only once an operation has succeeded."""
    store = opening(replace(sqlite_config, patience=600.0), products)["catalog"]
    store._availability.record_loss(ConnectionLost("its server has gone"))
    for use in (lambda: check(store), lambda: store.read(count)):
        log_lines.append({"event": "used"})
        use()
    events = [line["event"] for line in log_lines[1:]]
    assert events == ["the store is not available", "used", "used", "the store is back"]


def test_a_store_that_stays_available_is_back_without_operations(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    products: Store,
    log_lines: list[dict[str, Any]],
    wait_for: Callable[..., None],
) -> None:
    """The log says so once health checks found no other loss for the patience of the store."""
    store = opening(sqlite_config, products)["catalog"]
    store._availability.record_loss(ConnectionLost("its server has gone"))
    wait_for(lambda: check(store).up and log_lines[-1]["event"] == "the store is back")


@pytest.mark.parametrize("method", ["single", "run"])
def test_the_log_is_watched_from_the_first_write_on(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store, method: str
) -> None:
    """The second write detects that the log is deleted before it is acknowledged."""
    store = opening(sqlite_config, plain_products)["catalog"]
    insert = "INSERT INTO products (sku, price, stock) VALUES (?, 1, 1)"
    getattr(store, method)(lambda session: session.insert(insert, "a"))
    (sqlite_config.folder / "catalog.sqlite3-wal").unlink()
    with pytest.raises(Unavailable, match=r"lost its log, catalog\.sqlite3-wal"):
        getattr(store, method)(lambda session: session.insert(insert, "b"))


def test_recently_used_connections_are_kept(store: OpenStore[Any]) -> None:
    """The next peak finds them open."""
    together = threading.Barrier(3, timeout=SOON)

    def meet(db: Any) -> int:
        found = count(db)
        together.wait()
        return found

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(store.read, meet) for _ in range(3)]:
            each.result()
    assert store.figures["connections_open"] == 3


def test_writes_that_do_not_wait_are_not_counted_as_waits(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store
) -> None:
    """A slow moment of the machine may look like a wait, but not in each of fifty writes."""
    store = opening(sqlite_config, products)["catalog"]
    for number in range(50):
        store.run(add, f"{number}")
    assert store.figures["lock_waits"] < 50
