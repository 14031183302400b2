"""A full disk under either database: writes fail, reads don't, and the log has one event."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.disks import full, small_disk
from tests.stores.test_rows import add, skus

from plughost.stores import Session, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._errors import http_error
from plughost.stores._manager import Stores, check

if TYPE_CHECKING:
    from plughost import Store


@pytest.fixture(params=["sqlite", "postgresql", "TABLE products", "INDEX products_sku_key"])
def disk_and_config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, StoresConfig, str]]:
    """A small disk, and the settings of a store on it, or with a table or an index on it."""
    folder, url, moved = tmp_path / "stores", None, ""
    if request.param != "sqlite":
        server, psycopg2 = request.getfixturevalue("server"), request.getfixturevalue("psycopg2")
        folder, url = server.folder / "small", server.url
    folder.mkdir()
    with small_disk(folder):
        if url is not None:
            space = folder / "space"
            space.mkdir()
            shutil.chown(space, folder.parent.owner())
            with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
                connection.autocommit = True
                cursor.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
                if request.param == "postgresql":
                    cursor.execute("ALTER DATABASE postgres SET default_tablespace = small")
                else:
                    moved = f"ALTER {request.param} SET TABLESPACE small"
        yield folder, StoresConfig(folder=folder, url=url, patience=1, pause=0.01), moved


def test_a_full_disk_is_reported_once_and_not_ready_until_there_is_room(
    disk_and_config: tuple[Path, StoresConfig, str],
    opening: Callable[..., Stores],
    plain_products: Store,
    wait_for: Callable[..., None],
    log_lines: list[dict[str, Any]],
) -> None:
    """A write that needs no room succeeds meanwhile, which doesn't prove that the store has recovered."""
    disk, config, moved = disk_and_config
    stores = opening(config, plain_products)
    store = stores["catalog"]
    if moved:
        with store.database.administer() as db:
            db.script(moved)

    def said() -> list[str]:
        return [line["event"] for line in log_lines if line["event"] != "the store was migrated"]

    def fill(session: Session) -> None:
        for number in range(200):
            session.change(
                "INSERT INTO products (sku, name, price, stock) VALUES (?, ?, 1, 1)", f"{number:0200}", "x" * 250
            )

    with closing(stores):  # before its disk is unmounted
        store.single(add, "before")
        begun = time.monotonic()
        for _ in range(2):
            with full(disk):
                for _ in range(3):
                    with pytest.raises(Unavailable):
                        store.run(fill)
                    assert store.run(Session.change, "DELETE FROM products WHERE sku = 'none'") == 0
                    assert (store.read(skus), check(store).up) == (["before"], False)
                assert said() == ["the store can't be written"]
            wait_for(lambda: check(store).up)
            assert said() == ["the store can't be written", "the store is well again"]
            assert log_lines[-1]["seconds"] <= time.monotonic() - begun + 0.1, "it is rounded"
            log_lines.clear()
        with full(disk), pytest.raises(Unavailable) as caught:
            store.run(fill)
        assert "no room" in (http_error(caught.value).description or "")
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: store.single(add, f"after {number}"), range(16)))
        assert said() == ["the store can't be written", "the store is well again"]


def test_a_limit_of_file_size_is_reported_like_a_full_disk(
    sqlite_config: StoresConfig,
    opening: Callable[..., Stores],
    plain_products: Store,
    wait_for: Callable[..., None],
    log_lines: list[dict[str, Any]],
) -> None:
    """Like with a quota, nothing of a write is stored, and its outcome is known."""
    store = opening(sqlite_config, plain_products)["catalog"]
    store.single(add, "before")
    log = sqlite_config.folder / "catalog.sqlite3-wal"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, limits[1]))
    try:
        for write in (store.single, store.run) * 2:
            with pytest.raises(Unavailable):
                write(add, "refused")
            assert (store.read(skus), check(store).up) == (["before"], False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    wait_for(lambda: check(store).up)
    store.single(add, "after")
    assert store.read(skus) == ["after", "before"]
    assert [line["event"] for line in log_lines[1:]] == ["the store can't be written", "the store is well again"]


def test_a_full_disk_that_keeps_a_store_from_being_read_is_named(
    sqlite_config: StoresConfig, opening: Callable[..., Stores], plain_products: Store, log_lines: list[dict[str, Any]]
) -> None:
    """A store that nobody has read since the start needs room for an index of 32 KiB, and the log says so once."""
    store = opening(sqlite_config, plain_products)["catalog"]
    log_lines.clear()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32767, limits[1]))
    try:
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                store.read(skus)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.read(skus) == []
    assert [line["event"] for line in log_lines] == ["the store can't be read", "the store is well again"]
    assert "no room for the index of its log, -shm" in log_lines[0]["reason"]
    assert "no room" in (http_error(caught.value).description or "")
