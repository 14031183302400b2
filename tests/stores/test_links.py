"""SQLite files that are symbolic links, as to a larger disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.stores.test_rows import add

from plughost._backups import backup, restore
from plughost.stores import OpenStore, Session, Unavailable, purge

if TYPE_CHECKING:
    from pathlib import Path

    from plughost import Store
    from plughost.stores._config import StoresConfig
    from plughost.stores._manager import Stores


@pytest.fixture
def file(sqlite_config: StoresConfig) -> Path:
    """The store's file, in the data folder."""
    return sqlite_config.folder / "catalog.sqlite3"


@pytest.fixture
def linked(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store, file: Path, tmp_path: Path
) -> Iterator[OpenStore[Session]]:
    """An open store whose file is a link into another folder."""
    opening(sqlite_config, plain_products).close()
    (tmp_path / "elsewhere").mkdir()
    file.symlink_to(file.rename(tmp_path / "elsewhere" / "products.db"))
    with closing(opening(sqlite_config, plain_products)) as stores:
        stores["catalog"].single(add, "first")
        yield stores["catalog"]


def test_a_deleted_log_of_a_linked_file_is_detected(linked: OpenStore[Session], file: Path) -> None:
    """SQLite keeps the log beside the file that the link leads to."""
    file.resolve().with_name("products.db-wal").unlink()
    with pytest.raises(Unavailable, match="lost its log"):
        linked.single(add, "refused")


def test_purge_drops_the_data_of_a_linked_file(linked: OpenStore[Session], file: Path) -> None:
    """Neither the link nor the file that it leads to is left."""
    real = file.resolve()
    linked.close()
    purge(linked)
    assert not file.is_symlink()
    assert not list(real.parent.iterdir())


def test_a_damaged_linked_file_is_restored_where_it_is(linked: OpenStore[Session], file: Path, tmp_path: Path) -> None:
    """The link stays, and leads to the restored file."""
    real, saved = file.resolve(), tmp_path / "saved"
    backup(linked, saved)
    linked.close()
    real.write_bytes(b"no database" * 100)
    restore(linked, saved)
    assert file.is_symlink()
    with closing(sqlite3.connect(real)) as restored:
        assert restored.execute("SELECT sku FROM products").fetchall() == [("first",)]
