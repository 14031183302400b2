"""Backups that meet another backup, another kind of database, or a folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stores.operations import add, skus
from tests.stores.test_care import prepared

from plughost._backups import backup, restore
from plughost.stores import SetupError, statistics
from plughost.stores._config import StoresConfig
from plughost.stores._errors import Damaged

if TYPE_CHECKING:
    from plughost import Store
    from plughost.stores._manager import Stores


def test_only_one_of_many_backups_writes_a_file(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """The others say that it is there, even if all end at once."""
    store = opening(sqlite_config, products)["catalog"]
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            file = tmp_path / str(number)
            errors = {each.exception() for each in [pool.submit(backup, store, file) for _ in range(8)]} - {None}
            assert [str(each).removeprefix(str(file)) for each in errors] == [
                " is there already: choose another name, or move it away"
            ] * 7


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="the tools of PostgreSQL are not installed")
def test_a_damaged_store_is_restored_while_its_host_runs(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, tmp_path: Path
) -> None:
    """The first operation that found the damage closed the store; nobody has to ask for it once more."""
    store = opening(config, products)["catalog"]
    store.run(add, "a")
    backup(store, tmp_path / "copy")
    with store.database.administer() as db:
        db.script("DROP TABLE products")
    with pytest.raises(Damaged):
        store.run(add, "b")
    assert restore(prepared(config, products), tmp_path / "copy") == 1
    assert store.read(skus) == ["a"]


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="the tools of PostgreSQL are not installed")
def test_a_backup_of_the_other_database_is_named(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, postgresql: str, products: Store, tmp_path: Path
) -> None:
    """The error names the file, what it is, the store and its database, and how to restore it."""
    configs = {"SQLite": sqlite_config, "PostgreSQL": StoresConfig(folder=tmp_path, url=postgresql)}
    for name, config in configs.items():
        stores = opening(config, products)
        backup(stores["catalog"], tmp_path / name)
        stores.close()
    for name, other in (("SQLite", "PostgreSQL"), ("PostgreSQL", "SQLite")):
        expected = f"{tmp_path / name} is a backup of a store on {name}, and the store catalog is on {other}: change "
        with pytest.raises(SetupError, match=expected):
            restore(prepared(configs[other], products), tmp_path / name)
    (tmp_path / "text").write_text("no backup")
    for config in configs.values():
        with pytest.raises(SetupError, match=f"{tmp_path}/text cannot be restored to the store catalog: "):
            restore(prepared(config, products), tmp_path / "text")


def test_a_folder_in_the_place_of_the_file_is_named(sqlite_config: StoresConfig, products: Store) -> None:
    """The error says that it is one, and what to do; SQLite calls it a file that it can't open, or a faulty disk."""
    file = sqlite_config.folder / "catalog.sqlite3"
    file.mkdir(parents=True)
    store = prepared(sqlite_config, products)
    for operation in (store.database.check, store.try_migrations, lambda: backup(store, file.with_name("copy"))):
        with pytest.raises(Damaged, match=f"{file} is a folder: move it away, and put the store's file or a backup"):
            operation()
    assert "is a folder" in (statistics(store).trouble or "")


def test_a_file_in_the_place_of_the_folder_is_named(sqlite_config: StoresConfig, products: Store) -> None:
    """Such a store was called not created yet."""
    sqlite_config.folder.parent.mkdir(parents=True, exist_ok=True)
    sqlite_config.folder.write_text("")
    store = prepared(sqlite_config, products)
    for operation in (store.database.check, store.try_migrations, lambda: backup(store, Path("copy"))):
        with pytest.raises(Damaged, match=f"{sqlite_config.folder} is a file, .*: move the file away"):
            operation()
