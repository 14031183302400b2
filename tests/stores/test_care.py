"""Purging, backing up, restoring and inspecting stores."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count, skus

from plughost._backups import backup, restore
from plughost.stores import Busy, MigrationError, OpenStore, SetupError, purge
from plughost.stores._config import StoresConfig
from plughost.stores._errors import Damaged
from plughost.stores._manager import Stores, check, prepare_stores, statistics
from plughost.stores._sqlite_files import connect, copy, scratch

if TYPE_CHECKING:
    from plughost._api.declarations import Store


def prepared(config: StoresConfig, store: Store) -> OpenStore[Any]:
    """Return a store as the command line opens it."""
    return prepare_stores({"plugin": (store,)}, config)[store.name]


def test_after_a_purge_the_store_starts_anew(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """A purge leaves nothing, and the next start migrates from the beginning."""
    stores = opening(config, products)
    stores["catalog"].run(add, "a")
    stores.close()
    purge(prepared(config, products))
    assert statistics(prepared(config, products)).schema == 0
    assert {path.name for path in config.folder.glob("*")} <= {"catalog.sqlite3.lock"}
    assert opening(config, products)["catalog"].read(count) == 0


def test_purge_touches_no_other_store(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """Stores that share a database are purged one by one."""
    notes = declare("CREATE TABLE notes (id {identity});", name="notes", tables=("notes",))
    stores = opening(config, products, notes)
    stores["catalog"].run(add, "a")
    stores["notes"].close()
    purge(prepared(config, notes))
    assert stores["catalog"].read(skus) == ["a"]
    assert statistics(prepared(config, products)).schema == 1
    assert statistics(prepared(config, notes)).schema == 0


def test_purge_refuses_while_a_host_serves_the_store(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """The purge is refused until the last of two hosts has stopped."""
    first, second = opening(config, products), opening(config, products)
    first["catalog"].run(add, "a")
    first.close()
    with pytest.raises(Busy, match="A host serves the store catalog"):
        purge(prepared(config, products))
    assert second["catalog"].read(skus) == ["a"]
    second.close()
    purge(prepared(config, products))


def test_purge_refuses_while_an_unused_host_serves_the_store(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """A host that has just started holds its stores even before its first request, whether or not it migrated them."""
    for _ in range(2):
        stores = opening(config, plain_products)
        with pytest.raises(Busy, match="A host serves the store catalog"):
            purge(prepared(config, plain_products))
        stores.close()
    purge(prepared(config, plain_products))


def test_purge_refuses_after_a_breaking_migration(
    opening: Callable[..., Stores], config: StoresConfig, declare: Declare
) -> None:
    """The host that had exclusive use for the migration serves the store from then on."""
    declared = declare("CREATE TABLE notes (id {identity});", entities=None, tables=("notes",))
    opening(config, replace(declared, breaking=(1,)))
    with pytest.raises(Busy, match="A host serves the store catalog"):
        purge(prepared(config, declared))


def test_purge_refuses_after_a_failed_breaking_migration(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, declare: Declare
) -> None:
    """The host continues with the older version, and holds the store even before the next request."""
    older = opening(config, products)["catalog"]
    failing = declare(PRODUCTS, "CREATE nonsense;", entities=product_entities, tables=("products",))
    with pytest.raises(MigrationError, match="0002_step"):
        prepared(config, replace(failing, breaking=(2,))).migrate(older)
    with pytest.raises(Busy, match="A host serves the store catalog"):
        purge(prepared(config, products))


def test_a_store_opens_after_its_purge(opening: Callable[..., Stores], config: StoresConfig, products: Store) -> None:
    """A host that starts during a purge neither fails nor disturbs it."""
    with prepared(config, products).database.exclusive_claim():
        stores = opening(config, products)
        assert (stores.failures, check(stores["catalog"]).up) == ({}, False)
    stores["catalog"].run(add, "a")


def test_purge_of_a_store_never_opened_creates_nothing(sqlite_config: StoresConfig, products: Store) -> None:
    """It leaves no empty files."""
    purge(prepared(sqlite_config, products))
    assert not sqlite_config.folder.exists()


def test_a_backup_taken_while_writing_is_consistent_and_restores(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """Pairs written in one transaction are in the copy together or not at all."""
    stores = opening(sqlite_config, products)
    catalog = stores["catalog"]
    enough, stop = threading.Event(), threading.Event()

    def add_pair(db: Any, number: int) -> None:
        for half in "ab":
            add(db, f"{number} {half}")

    def write() -> None:
        for number in range(10_000):
            catalog.run(add_pair, number)
            if number == 20:
                enough.set()
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert enough.wait(60)
        backup(prepared(sqlite_config, products), tmp_path / "copy")
    finally:
        stop.set()
        writer.join()
    written = catalog.read(count)
    stores.close()
    assert restore(prepared(sqlite_config, products), tmp_path / "copy") == 1
    restored = opening(sqlite_config, products)["catalog"].read(skus)
    assert 40 <= len(restored) <= written
    assert [sku for sku in restored if sku.endswith("a")] == [f"{sku[:-1]}a" for sku in restored if sku.endswith("b")]
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy"]


def test_a_backup_with_pages_of_another_size_is_restored(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """As after VACUUM with another page_size."""
    stores = opening(sqlite_config, products)
    stores["catalog"].run(add, "a")
    backup(prepared(sqlite_config, products), tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy", isolation_level=None)) as copy:
        copy.execute("PRAGMA page_size = 8192")
        copy.execute("VACUUM")
    stores["catalog"].run(add, "b")
    stores.close()
    assert restore(prepared(sqlite_config, products), tmp_path / "copy") == 1
    assert opening(sqlite_config, products)["catalog"].read(skus) == ["a"]


@pytest.mark.parametrize("name", ["copy", "ä" * 120])
def test_a_backup_is_one_private_file_and_overwrites_none(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path, name: str
) -> None:
    """A store may contain secrets, and an older backup may be needed. Its name may be as long as the system allows."""
    opening(sqlite_config, products)
    backup(prepared(sqlite_config, products), tmp_path / name)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    for there in (tmp_path / name, Path()):  # the latter as of an empty variable of a script
        with pytest.raises(SetupError, match="is there already"):
            backup(prepared(sqlite_config, products), there)


def test_the_files_of_a_store_are_private(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store
) -> None:
    """Others can read neither the database nor SQLite's files beside it."""
    opening(sqlite_config, products)["catalog"].run(add, "a")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sqlite_config.folder.iterdir()}
    assert "catalog.sqlite3-wal" in modes
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(sqlite_config.folder.stat().st_mode) == 0o700


def test_restore_refuses_while_a_host_serves_the_store(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """A database is not replaced while a host reads it."""
    stores = opening(sqlite_config, products)
    backup(stores["catalog"], tmp_path / "copy")
    stores["catalog"].run(add, "a")
    with pytest.raises(Busy, match="A host serves"):
        restore(prepared(sqlite_config, products), tmp_path / "copy")
    assert stores["catalog"].read(skus) == ["a"]


def test_restore_refuses_an_unsound_backup(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """A damaged file, a foreign file or a missing file leaves the store as it is."""
    stores = opening(sqlite_config, products)
    stores["catalog"].run(add, "a")
    for number in range(200):
        stores["catalog"].run(add, f"{number}", name="x" * 200)
    backup(stores["catalog"], tmp_path / "damaged")
    stores.close()
    content = bytearray((tmp_path / "damaged").read_bytes())
    content[-8192:-4096] = b"\xff" * 4096
    (tmp_path / "damaged").write_bytes(content)
    (tmp_path / "text").write_text("no database at all")
    with closing(sqlite3.connect(tmp_path / "foreign")) as foreign:
        foreign.execute("CREATE TABLE something (id INTEGER)")
    for name in ("damaged", "text", "foreign", "missing"):
        with pytest.raises(SetupError):
            restore(prepared(sqlite_config, products), tmp_path / name)
    assert opening(sqlite_config, products)["catalog"].read(count) == 201


@pytest.mark.parametrize("damage", [b"no database" * 1000, b""], ids=["no database", "empty"])
def test_a_backup_replaces_a_file_that_is_no_database(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path, damage: bytes
) -> None:
    """This is a backup's purpose; the old log is not applied to it, and the file stays private."""
    stores = opening(sqlite_config, products)
    stores["catalog"].run(add, "a")
    backup(stores["catalog"], tmp_path / "copy")
    stores["catalog"].run(add, "b")
    stores.close()
    file = sqlite_config.folder / "catalog.sqlite3"
    file.write_bytes(damage)
    assert restore(prepared(sqlite_config, products), tmp_path / "copy") == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert opening(sqlite_config, products)["catalog"].read(skus) == ["a"]
    assert not list(file.parent.glob(".*"))


def test_restore_refuses_a_newer_schema(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, declare: Declare, tmp_path: Path
) -> None:
    """A backup of a later version of the plugin couldn't be opened."""
    newer = declare(PRODUCTS, "SELECT 1;", entities=product_entities, tables=("products",))
    stores = opening(sqlite_config, newer)
    backup(stores["catalog"], tmp_path / "copy")
    stores.close()
    with pytest.raises(MigrationError, match=r"has schema 2, .* no newer one than 1"):
        restore(prepared(sqlite_config, products), tmp_path / "copy")


def test_an_older_backup_is_migrated_on_the_next_start(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, declare: Declare, tmp_path: Path
) -> None:
    """A restore goes back in data, not in code."""
    stores = opening(sqlite_config, products)
    stores["catalog"].run(add, "old")
    backup(stores["catalog"], tmp_path / "copy")
    stores.close()
    newer = declare(PRODUCTS, "DELETE FROM products WHERE sku = 'new';", entities=product_entities)
    opening(sqlite_config, newer).close()
    assert restore(prepared(sqlite_config, newer), tmp_path / "copy") == 1
    catalog = opening(sqlite_config, newer)["catalog"]
    assert (catalog.schema, catalog.read(skus)) == (2, ["old"])


def test_statistics_have_schema_rows_and_size(store: OpenStore[Any]) -> None:
    """They are available while the store is open, and have no password."""
    for number in range(3):
        store.run(add, f"{number}")
    found = statistics(store)
    assert (found.store, found.plugin, found.schema, found.latest) == ("catalog", "catalog-plugin", 1, 1)
    assert (dict(found.rows), found.trouble) == ({"products": 3}, None)
    assert found.size > 4096
    assert found.dialect in found.place or "catalog.sqlite3" in found.place


def test_statistics_of_an_unreachable_store_say_why(tmp_path: Path, products: Store, psycopg2: Any) -> None:
    """A server that refuses connections is a reported problem, not a traceback."""
    config = StoresConfig(folder=tmp_path, url="postgresql://me:secret@127.0.0.1:1/none")
    found = statistics(prepared(config, products))
    assert found.trouble is not None
    assert "secret" not in found.place + found.trouble


def test_a_damaged_store_is_not_backed_up(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """The backup says what is damaged, and if it made a file, restore refuses it."""
    stores = opening(sqlite_config, products)
    for number in range(200):
        stores["catalog"].run(add, f"{number}", name="x" * 200)
    stores.close()
    file = sqlite_config.folder / "catalog.sqlite3"
    content = bytearray(file.read_bytes())
    content[-8192:-4096] = b"\xff" * 4096
    file.write_bytes(content)
    with pytest.raises(Damaged, match="is damaged") as caught:
        backup(prepared(sqlite_config, products), tmp_path / "copy")
    assert list(tmp_path.glob("*copy*")) == []
    assert "\n" not in str(caught.value), "SQLite says it in several lines"


def test_a_damaged_file_makes_its_store_unavailable_until_it_is_replaced(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """The host starts, readiness has the cause, and a backup in the file's place is served."""
    opening(sqlite_config, products).close()
    file = sqlite_config.folder / "catalog.sqlite3"
    sound = file.read_bytes()
    file.write_bytes(b"no database" * 1000)
    stores = opening(sqlite_config, products)
    assert stores.failures == {}
    health = check(stores["catalog"])
    assert (health.up, health.data["error"]) == (False, "Damaged")
    assert "file is not a database" in health.data["reason"]
    file.write_bytes(sound)
    wait_for(lambda: check(stores["catalog"]).up)
    stores["catalog"].run(add, "a")


def test_a_store_that_another_process_holds_is_busy(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store
) -> None:
    """A wait for another process's lock has a time-out, and reads continue."""
    catalog = opening(sqlite_config, products)["catalog"]
    with closing(sqlite3.connect(sqlite_config.folder / "catalog.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            catalog.run(add, "a")
        assert catalog.read(count) == 0
    catalog.run(add, "a")


def test_a_restore_over_a_lock_of_another_process_is_busy(tmp_path: Path) -> None:
    """SQLite's own copying would wait without limit, whatever time-out its connections have."""
    with (
        closing(scratch()) as backed_up,
        closing(sqlite3.connect(tmp_path / "held", isolation_level=None)) as other,
        closing(connect(tmp_path / "held", 0)) as target,
    ):
        backed_up.execute("CREATE TABLE things (id INTEGER)")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy, match="Another process"):
            copy(backed_up, target)
        other.execute("ROLLBACK")
        copy(backed_up, target)
        assert target.execute("SELECT count(*) FROM things").fetchone() == (0,)


def test_health_shows_the_engine_and_the_schema(store: OpenStore[Any]) -> None:
    """The check of an open store is up."""
    health = check(store)
    assert (health.up, health.data) == (True, {"database": store.database.config.dialect, "schema": 1})


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:a%40b@db:5433/x", "postgresql://me:***@db:5433/x"),
        ("postgresql://db/x?user=me&password=secret", "postgresql://db/x?user=me&password=***"),
        ("postgresql://db/x?sslkey=k&sslpassword=secret", "postgresql://db/x?sslkey=k&sslpassword=***"),
        ("postgresql://me@db/x?sslmode=require", "postgresql://me@db/x?sslmode=require"),
    ],
)
def test_places_show_no_password(tmp_path: Path, url: str, place: str) -> None:
    """The password is hidden wherever it is in the URL."""
    assert StoresConfig(folder=tmp_path, url=url).of("any").place == place


def test_each_store_may_have_a_place_of_its_own(tmp_path: Path) -> None:
    """There is one URL for all stores, with exceptions by name; other databases are refused."""
    config = StoresConfig(folder=tmp_path, url="postgresql://db/x", urls={"local": "sqlite", "odd": "mysql://db/x"})
    assert (config.of("shared").dialect, config.of("local").dialect) == ("postgresql", "sqlite")
    assert replace(config, url=None).of("shared").path == tmp_path / "shared.sqlite3"
    with pytest.raises(SetupError, match="odd is set to 'mysql://db/x'"):
        config.of("odd")
