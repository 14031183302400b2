"""Stores of a read-only host: read-only databases, files and folders."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count, skus

from plughost.stores import MigrationError, SetupError, Unavailable, http_error, purge
from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, check, migrate_stores, prepare_stores, statistics, try_stores

if TYPE_CHECKING:
    from plughost._api.declarations import Store

NOBODY = 65534


@pytest.fixture
def config(config: StoresConfig, opening: Callable[..., Stores], products: Store) -> StoresConfig:
    """Settings of a read-only host, for a store with one product."""
    stores = opening(config, products)
    stores["catalog"].run(add, "before")
    stores.close()
    return replace(config, tuned={"catalog": {"read_only": True}})


@pytest.fixture
def takes_no_writes(config: StoresConfig, request: pytest.FixtureRequest) -> None:
    """Make the database of these settings read-only."""
    if config.url is None:
        config.of("catalog").path.chmod(0o400)  # type: ignore[union-attr] # it is on SQLite
        return
    with closing(request.getfixturevalue("psycopg2").connect(config.url)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"ALTER DATABASE {urlsplit(config.url).path[1:]} SET default_transaction_read_only = on")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that users other than root may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.usefixtures("takes_no_writes")
@pytest.mark.parametrize("entities", [True, False])
def test_a_read_only_host_is_ready_on_a_read_only_database(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, *, entities: bool
) -> None:
    """Its checks are up, reads are answered, and a refused write doesn't change that."""
    store = opening(config, products if entities else replace(products, entities=None))["catalog"]

    def read() -> int:
        return int(store.read(count if entities else lambda db: db.row("SELECT count(*) FROM products")[0]))

    assert (check(store).up, store.state, read()) == (True, "open", 1)
    for write in (store.run, store.single):
        with pytest.raises(Unavailable, match=r"This host only reads the store catalog \(stores.read_only\)."):
            write(add, "lost")
    assert (check(store).up, store.state, read()) == (True, "open", 1)


def test_a_refused_write_is_503_without_retry_after(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """The host refuses it even if the database would accept it, and always will."""
    store = opening(config, products)["catalog"]
    with pytest.raises(Unavailable) as refused:
        store.run(add, "lost")
    found = http_error(refused.value)
    assert (found.status_code, found.title, found.headers) == (503, "Read Only", None)
    assert store.read(skus) == ["before"]


def test_an_operation_cannot_write_in_a_read(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """The connection itself is read-only."""
    store = opening(config, products)["catalog"]
    with pytest.raises(Exception, match=r"A read of the store catalog was about to write|read.only"):
        store.read(add, "lost")
    with (
        pytest.raises(Unavailable, match=r"read.?only"),
        store.database.administer() as db,
    ):
        db.change("DELETE FROM products")
    assert store.read(skus) == ["before"]


def test_an_old_schema_is_refused_and_left_unchanged(
    opening: Callable[..., Stores], config: StoresConfig, declare: Declare
) -> None:
    """The message has both versions and says who must migrate; a preview says so, too."""
    newer = declare(PRODUCTS, "DELETE FROM products;", entities=product_entities, tables=("products",))
    prepared = prepare_stores({"catalog-plugin": (newer,)}, config)
    for stores in (opening(config, newer), try_stores(prepared)):
        failure = stores.failures["catalog-plugin"]
        assert isinstance(failure, MigrationError)
        assert "the store catalog has schema 1, and its plugin needs 2" in str(failure)
        assert "let a host that writes it apply the migrations first" in str(failure)
    found = statistics(prepared["catalog"])
    assert (found.schema, found.rows, found.trouble) == (1, {"products": 1}, None)


def test_a_read_only_store_is_not_purged(config: StoresConfig, products: Store) -> None:
    """A restore is refused for the same reason."""
    store = prepare_stores({"catalog-plugin": (products,)}, config)["catalog"]
    with pytest.raises(SetupError, match=r"This host only reads the store catalog \(stores.read_only\): use one"):
        purge(store)
    assert statistics(store).rows == {"products": 1}


def test_a_missing_file_is_not_created(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """The store is unavailable, and available as soon as somebody has put the file there."""
    store = opening(replace(sqlite_config, read_only=True), products)["catalog"]
    assert not check(store).up
    file = sqlite_config.of("catalog").path
    assert file is not None
    assert not file.exists()
    opening(sqlite_config, products)["catalog"].run(add, "written")
    wait_for(lambda: check(store).up)
    assert store.read(skus) == ["written"]


def test_a_reader_sees_what_a_writer_adds(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """Of two hosts on one database, one writes, and the other sees it at once."""
    reader = opening(config, products)["catalog"]
    assert reader.read(count) == 1
    writer = opening(replace(config, tuned={}), products)["catalog"]
    writer.run(add, "later")
    assert reader.read(skus) == ["before", "later"]


def test_a_read_only_folder_is_read(
    opening: Callable[..., Stores], products: Store, folder: Path, wait_for: Callable[..., None]
) -> None:
    """An example is a read-only mount; others' changes are seen, since cached pages are checked."""
    config = StoresConfig(folder=folder / "stores", patience=0.3, pause=0.01)
    stores = opening(config, products)
    stores["catalog"].run(add, "before")
    stores.close()
    file = config.folder / "catalog.sqlite3"
    reading, tried = (prepare_stores({"plugin": (products,)}, replace(config, read_only=True)) for _ in range(2))
    store = reading["catalog"]
    assert len(store.migrations) == len(tried["catalog"].migrations)  # read here, since the other user may not
    with closing(reading):
        with forbidden(config.folder, file):
            migrate_stores(reading).open()
            assert (check(store).up, store.read(skus), try_stores(tried).doubts) == (True, ["before"], ())
        with closing(sqlite3.connect(file)) as other, other:
            other.execute("UPDATE products SET sku = 'after'")
        wait_for(lambda: check(store).up and store.read(skus) == ["after"])


def test_a_read_only_folder_is_not_read_beside_a_log(
    opening: Callable[..., Stores], products: Store, folder: Path
) -> None:
    """The last commits are in the log, which can't be read without memory shared with its writer."""
    config = StoresConfig(folder=folder / "stores", patience=0.3, pause=0.01)
    opening(config, products).close()
    file = config.folder / "catalog.sqlite3"
    file.with_name(f"{file.name}-wal").touch()
    reading = prepare_stores({"plugin": (products,)}, replace(config, read_only=True))
    assert reading["catalog"].migrations  # read here, since the other user may not
    with closing(reading), forbidden(config.folder, file):
        migrate_stores(reading).open()
        assert not check(reading["catalog"]).up


def test_a_file_that_was_read_only_at_the_start_is_written_once_it_may_be(
    opening: Callable[..., Stores], products: Store, folder: Path
) -> None:
    """A connection that SQLite opened only to read is not kept for later writes."""
    config = StoresConfig(folder=folder / "stores", patience=0.3, pause=0.01)
    opening(config, products).close()
    for path in (config.folder, *config.folder.iterdir()):
        path.chmod(0o777)
    stores = prepare_stores({"plugin": (products,)}, config)
    store = stores["catalog"]
    assert store.migrations  # read here, since the other user may not
    with closing(stores):
        with forbidden(config.folder / "catalog.sqlite3"):
            migrate_stores(stores).open()
            for write in (store.single, store.run):
                with pytest.raises(Unavailable, match="is read-only"):
                    write(add, "refused")
            assert not check(store).up
        store.single(add, "first")
        store.run(add, "second")
        assert (check(store).up, store.read(skus)) == (True, ["first", "second"])


@contextmanager
def forbidden(*paths: Path) -> Iterator[None]:
    """Make a file or folder read-only, as a user for whom this has an effect."""
    modes = [path.stat().st_mode for path in paths]
    me = os.geteuid()
    for path in paths:
        path.chmod(0o555)
    os.setresuid(me or NOBODY, me or NOBODY, me)
    try:
        yield
    finally:
        os.setresuid(me, me, me)
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
