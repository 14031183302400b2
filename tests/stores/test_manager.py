"""A host's stores: opened independently, reused, and closed without a trace."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count, skus

from plughost.stores import Session, StoreError, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._databases import database_for
from plughost.stores._manager import Stores, check, migrate_stores, open_stores, prepare_stores, statistics
from plughost.testing import open_store

if TYPE_CHECKING:
    from plughost._api.declarations import Store


def test_a_store_that_fails_affects_no_other(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """A plugin's broken migration fails only this plugin."""
    stores = opening(config, declare("CREATE nonsense;", name="broken"), products)
    assert list(stores) == ["catalog"]
    assert list(stores.failures) == ["broken-plugin"]
    stores["catalog"].run(add, "a")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("-- Grüße".encode("latin-1"), "0001_step.sql: 'utf-8' codec can't decode byte 0xfc"),
        (b"SELECT '\0';", "0001_step.sql: it has the character U\\+0000"),
        (None, "0001_step.sql: .*Is a directory"),
    ],
    ids=["not UTF-8", "NUL", "a folder"],
)
def test_a_migration_that_cannot_be_read_fails_only_its_plugin(
    opening: Callable[..., Stores], config: StoresConfig, declare: Declare, content: bytes | None, reason: str
) -> None:
    """The reason names the file."""
    broken = declare("SELECT 1;", name="broken")
    file = Path(str(broken.migrations / config.of("broken").dialect / "0001_step.sql"))
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    stores = opening(config, broken, declare(PRODUCTS))
    assert list(stores) == ["catalog"]
    assert re.search(
        f"the store broken has migrations that can't be read: {reason}", str(stores.failures["broken-plugin"])
    )


@pytest.mark.parametrize("wrong", [lambda db: 1 / 0, lambda db: product_entities(db) and db.Product._nothing])
def test_a_factory_that_raises_fails_its_plugin(config: StoresConfig, declare: Declare, wrong: Any) -> None:
    """An exception of a plugin's own code is reported with the store's name."""
    stores = open_stores({"plugin": (declare("SELECT 1;", entities=wrong),)}, config)
    assert "the entities of the store catalog" in str(stores.failures["plugin"])


def test_an_unchanged_store_is_reused(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """The next generation has the same object, and closing the old generation leaves it open."""
    notes = declare("CREATE TABLE notes (id {identity});", name="notes", tables=("notes",))
    old = opening(config, products, notes)
    catalog, dropped = old["catalog"], old["notes"]
    new = open_stores({"catalog-plugin": (products,)}, config, previous=old)
    old.close(keep=new)
    assert new["catalog"] is catalog
    assert (catalog.state, dropped.state) == ("open", "closed")
    catalog.run(add, "a")
    new.close()


def test_a_changed_store_is_opened_beside_the_old_one(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """Requests in flight finish on the old object while the new one serves."""
    old = opening(config, products)
    new = open_stores({"catalog-plugin": (replace(products, tables=()),)}, config, previous=old)
    assert new["catalog"] is not old["catalog"]
    old["catalog"].run(add, "old")
    new["catalog"].run(add, "new")
    old.close(keep=new)
    assert new["catalog"].read(skus) == ["new", "old"]
    new.close()


def test_a_changed_store_keeps_no_older_one_alive(config: StoresConfig, products: Store) -> None:
    """However often a store changes, memory stays flat."""
    old = open_stores({"catalog-plugin": (products,)}, config)
    new = open_stores({"catalog-plugin": (replace(products, tables=()),)}, config, previous=old)
    gone = weakref.ref(old["catalog"])
    old.close(keep=new)
    del old
    gc.collect()
    assert gone() is None
    new.close()


def test_an_operation_finishes_while_its_store_closes(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """Closing takes no used connection away."""
    stores = opening(config, products)

    def add_and_close(db: Any) -> int:
        add(db, "a")
        stores.close()
        return add(db, "b")

    assert stores["catalog"].run(add_and_close) == 2
    assert opening(config, products)["catalog"].read(count) == 2


@pytest.mark.parametrize("mode", ["read", "run"])
def test_a_used_connection_of_a_closed_store_is_closed_on_its_return(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, mode: str
) -> None:
    """SQLite removes its log with the last connection."""
    stores = opening(sqlite_config, products)
    log = sqlite_config.folder / "catalog.sqlite3-wal"
    stores["catalog"].run(add, "a")

    def close(db: Any) -> tuple[int, bool]:
        found = count(db)
        stores.close()
        return found, log.exists()

    assert getattr(stores["catalog"], mode)(close) == (1, True)
    assert not log.exists()


def test_a_breaking_migration_closes_older_code(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """Waiting and later operations find the store closed, and don't open it on the newer schema."""
    older = opening(config, products)["catalog"]
    step = "ALTER TABLE products ADD note VARCHAR(9);"
    declared = declare(PRODUCTS, step, entities=product_entities, tables=("products",))
    newer = prepare_stores({"catalog-plugin": (replace(declared, breaking=(2,)),)}, config)["catalog"]
    newer.migrate(older)
    assert newer.open()
    assert (older.state, newer.state) == ("closed", "open")
    with pytest.raises(Unavailable, match="another version of its plugin serves"):
        older.read(skus)
    newer.close()


def test_a_store_that_closes_before_it_opens_says_so(config: StoresConfig, products: Store) -> None:
    """Nobody waits for a generation that never serves."""
    stores = migrate_stores(prepare_stores({"plugin": (products,)}, replace(config, patience=3600)))
    stores.close()
    with pytest.raises(Unavailable, match="is closed"):
        stores["catalog"].read(count)


def test_opening_and_closing_leaves_nothing_behind(
    config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """No file descriptor, thread or Pony database is left, after operations in several threads."""
    databases: list[weakref.ref[Any]] = []

    def cycle() -> None:
        stores = open_stores({"plugin": (products,)}, config)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: stores["catalog"].read(count), range(8)))
        stores["catalog"].read(lambda db: databases.append(weakref.ref(db)))
        stores.close()

    cycle()
    descriptors, threads = _descriptors(), threading.active_count()
    for _ in range(20):
        cycle()
    assert _descriptors() <= descriptors
    wait_for(lambda: threading.active_count() <= threads)  # the last one may be ending
    gc.collect()
    assert sum(each() is not None for each in databases) <= 1


def test_threads_share_idle_connections(config: StoresConfig, products: Store) -> None:
    """A hundred threads, one after another, need only one connection."""
    stores = open_stores({"plugin": (products,)}, config)
    stores["catalog"].read(count)
    before = _descriptors()
    for _ in range(100):
        thread = threading.Thread(target=stores["catalog"].read, args=(count,))
        thread.start()
        thread.join()
    assert _descriptors() <= before
    stores.close()


def test_a_data_folder_that_cannot_be_created_is_unavailable_until_it_can(
    opening: Callable[..., Stores], tmp_path: Path, products: Store, wait_for: Callable[..., None]
) -> None:
    """As with a server that is down, no restart is needed."""
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file where the folder should be")
    stores = opening(StoresConfig(folder=in_the_way / "stores", pause=0.01), products)
    assert (stores.failures, stores["catalog"].state) == ({}, "unavailable")
    in_the_way.unlink()
    wait_for(lambda: _answers(stores))


def test_settings_that_lead_nowhere_are_refused_while_the_store_serves(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, plain_products: Store
) -> None:
    """A mistyped URL or password in a reload doesn't replace a store that works."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    old = opening(config, plain_products)
    nowhere = replace(config, url=f"{postgresql}_nowhere")
    new = migrate_stores(prepare_stores({"catalog-plugin": (plain_products,)}, nowhere, old), old)
    assert "_nowhere" in str(new.failures["catalog-plugin"])
    assert check(old["catalog"]).up


@pytest.mark.parametrize("lost", ["alpha", "beta"])
def test_a_database_that_is_lost_between_two_commits(
    tmp_path: Path,
    postgresql: str,
    declare: Declare,
    wait_for: Callable[..., None],
    lost: str,
) -> None:
    """If the first migration can't be stored, none is; a later one is repeated when the database is back."""
    config = StoresConfig(folder=tmp_path, url=postgresql, pause=0.01)
    steps = {name: [f"CREATE TABLE {name} (id {{identity}});"] for name in ("alpha", "beta")}
    old = open_stores({name: (declare(*steps[name], name=name),) for name in steps}, config)
    for name, each in steps.items():
        each.append(f"ALTER TABLE {name} ADD COLUMN further INTEGER;")
    upgraded = {name: (declare(*steps[name], name=name),) for name in steps}
    new = migrate_stores(prepare_stores(upgraded, config, old), old)
    with database_for(lost, config.of(lost)).administer() as db:
        db.rows("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation::regclass::text = ?", lost)
    if lost == "alpha":
        with pytest.raises(StoreError):
            new.open(old)
    else:
        new.open(old)
        wait_for(lambda: check(new["beta"]).up)
    assert {statistics(new[name]).schema for name in steps} == {1 if lost == "alpha" else 2}
    new.close()
    old.close()


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _answers(stores: Stores) -> bool:
    return check(stores["catalog"]).up


def test_a_store_that_a_test_opens_alone_is_closed_behind_it(tmp_path: Path, plain_products: Store) -> None:
    """A test that opens it again, or removes its folder, finds no connection of another one."""
    with open_store(plain_products, tmp_path) as store:
        assert store.read(Session.rows, "SELECT 1") == [(1,)]
    with pytest.raises(Unavailable):
        store.read(Session.rows, "SELECT 1")
