"""Backups of stores on PostgreSQL by its own tools."""

from __future__ import annotations

import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from tests.stores.conftest import PRODUCTS, product_entities
from tests.stores.operations import add, skus
from tests.stores.test_care import prepared
from tests.waiting import wait_until

from plughost._backups import backup, restore
from plughost.stores import Busy, MigrationError, OpenStore, SetupError, StoreError, browse, purge
from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, prepare_stores

if TYPE_CHECKING:
    from tests.stores.conftest import Declare
    from tests.stores.proxy import Proxy

    from plughost import Store

pytestmark = pytest.mark.skipif(shutil.which("pg_dump") is None, reason="the tools of PostgreSQL are not installed")


@pytest.fixture
def notes(declare: Declare) -> Store:
    """Declare a store of texts."""
    create = "CREATE TABLE notes (id {identity}, content TEXT);"
    return declare(create, name="notes", entities=None, tables=("notes",))


def test_a_backup_on_postgresql_is_restored_by_its_own_tools(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store, declare: Declare
) -> None:
    """The store has its old rows, new ids are higher, and another store of the database is unchanged."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    notes = declare("CREATE TABLE notes (id {identity});", name="notes", tables=("notes",))
    stores = opening(config, products, notes)
    stores["catalog"].run(add, "a")
    file = tmp_path / "catalog.dump"
    backup(stores["catalog"], file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    stores["catalog"].run(add, "later")
    stores["notes"].run(lambda db: db.session.rows("INSERT INTO notes DEFAULT VALUES RETURNING id"))
    with pytest.raises(Busy, match="serves the store catalog"):
        restore(stores["catalog"], file)
    stores.close()
    prepare = prepare_stores({"p": (products, notes)}, config)
    assert restore(prepare["catalog"], file) == 1
    with pytest.raises(SetupError, match="no backup of the store notes"):
        restore(prepare["notes"], file)
    stores = opening(config, products, notes)
    assert stores["catalog"].read(skus) == ["a"]
    assert stores["catalog"].run(add, "b") == 2
    assert stores["notes"].read(lambda db: db.session.rows("SELECT count(*) FROM notes")) == [(1,)]


def test_a_backup_has_texts_of_any_encoding(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store
) -> None:
    """The encoding that a role or a database has for other clients doesn't matter."""
    with closing(psycopg2.connect(postgresql)) as connection:
        connection.autocommit = True
        connection.cursor().execute(f"ALTER DATABASE {postgresql.rpartition('/')[2]} SET client_encoding = 'LATIN1'")
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores = opening(config, products)
    for sku in ("ä", "€"):
        stores["catalog"].run(add, sku)
    file = tmp_path / "catalog.dump"
    backup(stores["catalog"], file)
    stores.close()
    restore(prepare_stores({"p": (products,)}, config)["catalog"], file)
    assert opening(config, products)["catalog"].read(skus) == ["ä", "€"]


def test_a_restore_keeps_no_data_in_memory(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, notes: Store
) -> None:
    """A backup of any size can be restored: 64 MiB of rows take less than 8 MiB."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores = opening(config, notes)
    fill = "INSERT INTO notes (content) SELECT repeat('x', 1048576) FROM generate_series(1, 64)"
    stores["notes"].run(lambda session: session.change(fill))
    file = tmp_path / "notes.dump"
    backup(stores["notes"], file)
    stores.close()
    prepare = prepare_stores({"p": (notes,)}, config)
    tracemalloc.start()
    try:
        restore(prepare["notes"], file)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()
    total = opening(config, notes)["notes"].read(lambda session: session.row("SELECT sum(length(content)) FROM notes"))
    assert total == (64 * 1024 * 1024,)


def test_a_damaged_backup_changes_nothing(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, notes: Store
) -> None:
    """If pg_restore fails in the middle, the store keeps its rows, and the error says what is wrong."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores = opening(config, notes)
    fill = "INSERT INTO notes (content) SELECT md5(n::text) FROM generate_series(1, 50000) AS n"
    stores["notes"].run(lambda session: session.change(fill))
    file = tmp_path / "notes.dump"
    backup(stores["notes"], file)
    stores["notes"].run(lambda session: session.change("DELETE FROM notes WHERE id > 10"))
    stores.close()
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes(1000) + whole[middle + 1000 :])
    with pytest.raises(StoreError, match=r"pg_restore failed: .*could not uncompress"):
        restore(prepare_stores({"p": (notes,)}, config)["notes"], file)
    assert opening(config, notes)["notes"].read(lambda session: session.row("SELECT count(*) FROM notes")) == (10,)


def test_two_backups_to_one_file_do_not_mix(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store
) -> None:
    """The file is whole; the backup that ends later finds it there, and says so."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores = opening(config, products)
    stores["catalog"].run(add, "a")
    file = tmp_path / "catalog.dump"
    with closing(psycopg2.connect(postgresql)) as connection, ThreadPoolExecutor(2) as pool:
        cursor = connection.cursor()
        cursor.execute("LOCK TABLE products IN ACCESS EXCLUSIVE MODE")
        writing = [pool.submit(backup, stores["catalog"], file) for _ in range(2)]

        def are_waiting() -> bool:
            cursor.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'products'::regclass")
            return cursor.rowcount == 2

        wait_until(are_waiting)
        connection.rollback()
        errors = [str(each.exception()) for each in writing if each.exception() is not None]
    assert errors in ([], [f"{file} is there already: choose another name, or move it away"])
    assert [each.name for each in tmp_path.glob("*") if each.is_file()] == [file.name]
    stores.close()
    assert restore(prepare_stores({"p": (products,)}, config)["catalog"], file) == 1


def test_a_backup_from_a_server_that_hangs_ends(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, tmp_path: Path
) -> None:
    """PostgreSQL's own tools also give up after `connect_timeout`, and no file is written."""
    store = opening(replace(through_proxy, connect_timeout=2), products)["catalog"]
    proxy.hang()
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(StoreError, match="timeout expired"):
                thread.submit(backup, store, tmp_path / "backup").result(25)
        finally:
            proxy.go_on()
            proxy.drop()
    assert not list(tmp_path.glob("*backup*"))


def test_who_holds_a_table_holds_no_backup_and_no_restore_for_ever(
    opening: Callable[..., Stores],
    postgresql: str,
    tmp_path: Path,
    products: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each fails with PostgreSQL's reason, leaves no file, and changes no data."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores = opening(config, products)
    stores["catalog"].run(add, "a")
    backup(stores["catalog"], tmp_path / "old.dump")
    stores["catalog"].run(add, "later")
    stores.close()
    closed = prepare_stores({"p": (products,)}, config)["catalog"]
    monkeypatch.setattr("plughost._backups._LOCK_SECONDS", 1)
    with closing(psycopg2.connect(postgresql)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1 FROM products")  # and its transaction stays open
        with pytest.raises(StoreError, match="lock timeout"):
            restore(closed, tmp_path / "old.dump")
        cursor.execute("LOCK TABLE products IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match=r"(?s)timeout.*LOCK TABLE public\.products"):
            backup(closed, tmp_path / "new.dump")
    assert [each.name for each in tmp_path.glob("*.dump*")] == ["old.dump"]
    assert opening(config, products)["catalog"].read(skus) == ["a", "later"]


def test_an_older_backup_on_postgresql_is_migrated_on_the_next_start(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store, declare: Declare
) -> None:
    """Later tables are removed once nobody uses them, even if no other file can be created beside the backup."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores = opening(config, products)
    stores["catalog"].run(add, "old")
    backup(stores["catalog"], tmp_path / "copy")
    stores.close()
    file = (tmp_path / "copy").rename(tmp_path / ("x" * 255))
    parts = "CREATE TABLE parts (id {identity}, product BIGINT REFERENCES products (id));"
    newer = declare(PRODUCTS, parts, entities=product_entities, tables=("products", "parts"))
    opening(config, newer).close()
    with pytest.MonkeyPatch.context() as patch, closing(psycopg2.connect(postgresql)) as connection:
        patch.setattr("plughost._backups._LOCK_SECONDS", 1)
        connection.cursor().execute("SELECT 1 FROM parts")
        with pytest.raises(StoreError, match="lock timeout"):
            restore(prepared(config, newer), file)
    assert restore(prepared(config, newer), file) == 1
    catalog = opening(config, newer)["catalog"]
    assert (catalog.schema, catalog.read(skus)) == (2, ["old"])


def test_a_backup_is_restored_to_a_server_that_is_older_than_the_tools(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pg_restore of PostgreSQL 17 and newer sets a parameter that older servers don't know; rows stay as they are."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    notes = declare("CREATE TABLE notes (content TEXT);", name="notes", tables=("notes",))
    setting = "SET transaction_timeout = 0;"
    stores = opening(config, notes)
    stores["notes"].run(lambda db: db.session.rows("INSERT INTO notes VALUES (?) RETURNING 1", setting))
    backup(stores["notes"], tmp_path / "copy")
    stores.close()
    newer = tmp_path / "bin" / "pg_restore"
    newer.parent.mkdir()
    edit = f"1,/^SET client_encoding/{{ /^{setting}/d\ns/^SET client_encoding/{setting}\\\n&/\n}}"
    newer.write_text(f"#!/bin/sh\n{shutil.which('pg_restore')} \"$@\" | sed '{edit}'\n")
    newer.chmod(0o700)
    monkeypatch.setenv("PATH", str(newer.parent), prepend=os.pathsep)
    assert restore(prepared(config, notes), tmp_path / "copy") == 1
    rows = opening(config, notes)["notes"].read(lambda db: db.session.rows("SELECT content FROM notes"))
    assert rows == [(setting,)]


def back_up_between(store: OpenStore[Any], file: Path) -> None:
    """Create the product `a`, back up, and create `later`."""
    store.run(add, "a")
    backup(store, file)
    store.run(add, "later")


def test_a_backup_of_another_schema_is_refused(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store
) -> None:
    """Where the search path of a user or a URL leads to another place, a restore doesn't overwrite the first one."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores, file = opening(config, products), tmp_path / "catalog.dump"
    back_up_between(stores["catalog"], file)
    with stores["catalog"].database.administer() as db:
        db.script("CREATE SCHEMA other")
    stores.close()
    elsewhere = replace(config, url=f"{postgresql}?options=-csearch_path%3Dother")
    for _ in range(2):
        with pytest.raises(SetupError, match=r"the table public\.products, and the store catalog uses other\.products"):
            restore(prepared(elsewhere, products), file)
        opening(elsewhere, products).close()
    assert opening(config, products)["catalog"].read(skus) == ["a", "later"]


def test_a_backup_of_a_schema_whose_name_needs_quotes_is_restored(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store
) -> None:
    """Such as the schema of a user whose name does."""
    name = """ "the 'shop' A%" """
    with closing(psycopg2.connect(postgresql)) as connection:
        connection.autocommit = True
        connection.cursor().execute(
            f"""CREATE SCHEMA {name}; ALTER DATABASE {postgresql.rpartition("/")[2]} SET search_path = {name}"""
        )
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores, file = opening(config, products), tmp_path / "catalog.dump"
    back_up_between(stores["catalog"], file)
    stores.close()
    assert restore(prepared(config, products), file) == 1
    assert opening(config, products)["catalog"].read(skus) == ["a"]


def test_missing_tools_are_reported_as_a_command(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command can be copied to a machine that has them, writes the file that was asked for, and has no password."""
    url = postgresql.replace("postgres@", "postgres:secret@")
    store = opening(StoresConfig(folder=tmp_path, url=url), products)["catalog"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"pg_dump --format=custom .*products") as caught:
        backup(store, tmp_path / "backup")
    assert "secret" not in str(caught.value)
    assert f"--file={tmp_path}/backup " in str(caught.value)
    assert not list(tmp_path.glob("*backup*"))


def test_a_restore_needs_the_tools_here(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single command of PostgreSQL's restores one store, so the message names none; nothing is changed."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    stores, file = opening(config, products), tmp_path / "catalog.dump"
    back_up_between(stores["catalog"], file)
    stores.close()
    pg_restore = str(shutil.which("pg_restore"))
    monkeypatch.setenv("PATH", str(tmp_path))
    told = "is not installed here: install PostgreSQL's client tools, or restore where they are"
    with pytest.raises(SetupError, match=f"pg_restore {told}"):
        restore(prepared(config, products), file)
    (tmp_path / "pg_restore").symlink_to(pg_restore)
    with pytest.raises(SetupError, match=f"psql {told}"):
        restore(prepared(config, products), file)
    assert opening(config, products)["catalog"].read(skus) == ["a", "later"]


NOTES = "CREATE TABLE notes (id {identity});"
TABLES_AFTER = {
    "CREATE TABLE parts (id {identity}, note BIGINT REFERENCES notes (id));": ("notes", "parts"),
    "ALTER TABLE notes RENAME TO items;": ("items",),
}


@pytest.mark.parametrize("step", TABLES_AFTER, ids=["a table more", "a table renamed"])
def test_a_backup_from_before_a_migration_is_restored_by_the_version_that_migrated(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, declare: Declare, step: str
) -> None:
    """The older one is refused: it would leave tables that it doesn't know. Afterwards both can open the store."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    older = declare(NOTES, name="notes", tables=("notes",))
    newer = declare(NOTES, step, name="notes", tables=TABLES_AFTER[step])
    stores = opening(config, older)
    stores["notes"].run(lambda db: db.session.rows("INSERT INTO notes DEFAULT VALUES RETURNING id"))
    backup(stores["notes"], tmp_path / "copy")
    stores.close()
    opening(config, newer).close()
    with pytest.raises(MigrationError, match="install the newer version, restore, then install this one"):
        restore(prepared(config, older), tmp_path / "copy")
    assert restore(prepared(config, newer), tmp_path / "copy") == 1
    for store, schema in ((older, 1), (newer, 2)):
        with closing(opening(config, store)) as stores:
            assert (stores["notes"].schema, len(browse(stores["notes"], store.tables[0]).rows)) == (schema, 1)


def test_a_backup_of_a_store_that_only_names_its_tables_is_refused(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, products: Store, declare: Declare
) -> None:
    """Although both are in one database, so that the backup has the migrations of both."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    notes = declare(f"{NOTES} -- CREATE TABLE products\n", name="notes", tables=("notes",))
    opening(config, products, notes).close()
    backup(prepared(config, products), tmp_path / "copy")
    steps = (f"{NOTES} -- CREATE TABLE products\n", "ALTER TABLE notes RENAME TO items;")
    renamed = declare(*steps, name="notes", tables=("items",))
    with pytest.raises(SetupError, match="no backup of the store notes"):
        restore(prepared(config, renamed), tmp_path / "copy")


def test_a_version_purges_no_store_that_a_newer_one_migrated(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Path, declare: Declare
) -> None:
    """It would leave tables that the next upgrade stumbles over. A file is deleted as a whole."""
    on_server, in_file = StoresConfig(folder=tmp_path, url=postgresql), StoresConfig(folder=tmp_path)
    older = declare(NOTES, name="notes", tables=("notes",))
    newer = declare(NOTES, "CREATE TABLE parts (id {identity});", name="notes", tables=("notes", "parts"))
    for config in (on_server, in_file):
        opening(config, newer).close()
    with pytest.raises(MigrationError, match="install the newer version, then purge"):
        purge(prepared(on_server, older))
    purge(prepared(in_file, older))
    purge(prepared(on_server, newer))
    opening(on_server, newer).close()
