"""Stores for one test, on SQLite and in a database created for the test on a real PostgreSQL server."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog
from pony import orm
from tests.stores.proxy import Proxy
from tests.stores.server import Server
from tests.waiting import wait_until

from plughost._api.declarations import Store
from plughost.stores import OpenStore, Session
from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, migrate_stores, prepare_stores

SERVER = os.environ.get("PLUGHOST_TEST_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/test")
IDENTITY = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}
PRODUCTS = """
-- a comment; with a semicolon
CREATE TABLE products (
    id {identity},
    sku VARCHAR(255) NOT NULL UNIQUE,
    name VARCHAR(255) NOT NULL DEFAULT 'a;b',
    price DECIMAL(15, 4) NOT NULL,
    stock BIGINT NOT NULL
);
"""

Declare = Callable[..., Store]


def product_entities(db: Any) -> Any:
    """Define the entities of the table `products`."""

    class Product(db.Entity):  # type: ignore[misc] # Pony has no types
        _table_ = "products"
        id = orm.PrimaryKey(int, size=64, auto=True)
        sku = orm.Required(str, 255, unique=True, autostrip=False)
        name = orm.Optional(str, 255, nullable=False, autostrip=False)
        price = orm.Required(Decimal, 15, 4)
        stock = orm.Required(int, size=64)

    return db


def no_entities(db: Any) -> Any:
    """Define no entities."""
    return db


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Return a function that declares a store with the SQL of its migrations."""

    def declaring(
        *steps: str | tuple[str, str],
        name: str = "catalog",
        entities: Callable[[Any], Any] | None = no_entities,
        tables: tuple[str, ...] = (),
    ) -> Store:
        folder = tmp_path / f"migrations-{secrets.token_hex(4)}"
        for engine, identity in IDENTITY.items():
            (folder / engine).mkdir(parents=True)
            for number, step in enumerate(steps, start=1):
                file, sql = step if isinstance(step, tuple) else (f"{number:04}_step.sql", step)
                (folder / engine / file).write_text(sql.replace("{identity}", identity))
        return Store(name=name, entities=entities, migrations=folder, tables=tables)

    return declaring


@pytest.fixture
def products(declare: Declare) -> Store:
    """Declare a store with the table `products`."""
    return declare(PRODUCTS, entities=product_entities, tables=("products",))


@pytest.fixture
def plain_products(products: Store) -> Store:
    """Declare the same store without entities."""
    return replace(products, entities=None)


@pytest.fixture
def serving(opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store) -> OpenStore[Session]:
    """An open store in a file, with products on several pages."""
    store: OpenStore[Session] = opening(sqlite_config, plain_products)["catalog"]
    insert = "INSERT INTO products (sku, price, stock) VALUES (?, ?, ?)"
    for number in range(40):
        store.single(Session.change, insert, f"{number:03}{'x' * 200}", Decimal("19.99"), 1)
    return store


@pytest.fixture(scope="session")
def psycopg2() -> ModuleType:
    """The driver."""
    return pytest.importorskip("psycopg2", reason="PostgreSQL is not tested: psycopg2 is not installed")  # type: ignore[no-any-return] # pytest says Any


@pytest.fixture
def postgresql(psycopg2: ModuleType) -> Iterator[str]:
    """The URL of a database created for this test."""
    try:
        server = psycopg2.connect(SERVER, connect_timeout=3)
    except psycopg2.OperationalError as error:
        pytest.skip(f"PostgreSQL is not tested: none answers at {urlsplit(SERVER).hostname} ({error})")
    name = f"plughost_test_{secrets.token_hex(8)}"
    server.autocommit = True
    with closing(server), server.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        try:
            yield urlsplit(SERVER)._replace(path=f"/{name}").geturl()
        finally:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def proxy(postgresql: str) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    server = urlsplit(postgresql)
    assert server.hostname is not None
    proxy = Proxy(server.hostname, server.port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def through_proxy(postgresql: str, proxy: Proxy, tmp_path: Path) -> StoresConfig:
    """Settings that connect through the proxy."""
    server = urlsplit(postgresql)
    netloc = f"{server.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"
    return StoresConfig(folder=tmp_path, url=server._replace(netloc=netloc).geturl(), patience=2, pause=0.01)


@pytest.fixture
def server(psycopg2: Any, wait_for: Callable[..., None]) -> Iterator[Server]:
    """A PostgreSQL server of the test's own, in a folder that another user may enter."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        home = Path(folder, "server")
        home.mkdir()
        running = Server(home, psycopg2, wait_for)
        yield running
        running.crash()


@pytest.fixture(params=["sqlite", "postgresql"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> StoresConfig:
    """Settings with short waits, for each engine."""
    url = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    return StoresConfig(folder=tmp_path / "data" / "stores", url=url, patience=0.3, pause=0.01)


@pytest.fixture
def sqlite_config(tmp_path: Path) -> StoresConfig:
    """Settings for SQLite alone."""
    return StoresConfig(folder=tmp_path / "data" / "stores", patience=0.3, pause=0.01)


@pytest.fixture
def log_lines() -> list[dict[str, Any]]:
    """Log events of the stores that `opening` opens."""
    return []


@pytest.fixture
def opening(log_lines: list[dict[str, Any]]) -> Iterator[Callable[..., Stores]]:
    """Return a function that opens stores, which are closed after the test."""
    opened: list[Stores] = []

    def tell(logger: Any, level: str, line: Any) -> Any:
        log_lines.append(dict(line))
        raise structlog.DropEvent

    def open_(config: StoresConfig, *declared: Store) -> Stores:
        logger = structlog.wrap_logger(None, processors=[tell])
        prepared = prepare_stores({f"{each.name}-plugin": (each,) for each in declared}, config, logger=logger)
        opened.append(migrate_stores(prepared))
        opened[-1].open()
        return opened[-1]

    yield open_
    for stores in opened:
        stores.close()


@pytest.fixture
def store(opening: Callable[..., Stores], config: StoresConfig, products: Store) -> OpenStore[Any]:
    """An open store of products on each engine."""
    return opening(config, products)["catalog"]


@pytest.fixture
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Return a function that waits for a condition, or fails the test."""
    return wait_until
