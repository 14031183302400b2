"""Temporary databases for tests, on SQLite and PostgreSQL, so that one suite tests a plugin on both.

```python
@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request):
    with store_settings(request.param) as settings:
        yield settings

def test_it_keeps_notes(settings):
    with running_host(["notes"], settings=settings) as host, host.client() as client:
        ...
```
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest

from plughost.stores._config import StoresConfig
from plughost.stores._manager import open_stores

if TYPE_CHECKING:
    from plughost import Store
    from plughost.stores import OpenStore

E = TypeVar("E")

SERVER_VARIABLE: Final = "PLUGHOST_TEST_POSTGRESQL"
DEFAULT_SERVER: Final = "postgresql://postgres@127.0.0.1:5432/test"

_HAS_ICU: Final = (
    "SELECT current_setting('server_version_num')::int >= 150000"
    " AND EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i')"
)
_LOCALE: Final = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"


@contextmanager
def store_settings(dialect: str) -> Iterator[dict[str, Any]]:
    """Return host settings that put every store into a temporary database, on SQLite or PostgreSQL.

    Args:
        dialect: `sqlite` or `postgresql`. The latter uses `fresh_postgresql`.
    """
    if dialect == "sqlite":
        yield {"stores": {}}
        return
    with fresh_postgresql() as url:
        yield {"stores": {"url": url}}


@contextmanager
def fresh_postgresql() -> Iterator[str]:
    """Return the URL of a database that exists for the length of a `with` block.

    The environment variable `PLUGHOST_TEST_POSTGRESQL` names the server: the URL of a database on it whose user may
    create others. `postgresql://postgres@127.0.0.1:5432/test` by default. If the driver is missing or no server
    answers, the test is skipped and says so. If the server can, the database sorts text as people do, not by code
    points as SQLite does: a plugin that relies on one order then fails.
    """
    driver = pytest.importorskip("psycopg2", reason="PostgreSQL is not tested: psycopg2 is not installed")
    url = os.environ.get(SERVER_VARIABLE, DEFAULT_SERVER)
    try:
        server = driver.connect(url, connect_timeout=5)
    except driver.OperationalError as error:
        host = urlsplit(url).hostname
        pytest.skip(f"PostgreSQL is not tested: none at {host}, {SERVER_VARIABLE} names another ({error})")
    server.autocommit = True
    name = f"plughost_test_{secrets.token_hex(8)}"
    with closing(server), server.cursor() as cursor:
        cursor.execute(_HAS_ICU)
        cursor.execute(f"CREATE DATABASE {name} {_LOCALE if cursor.fetchone()[0] else ''}")
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def open_store(store: Store[E], folder: Path, url: str | None = None) -> Iterator[OpenStore[E]]:
    """Migrate and open a store without a host, for the length of a `with` block: its operations can be tested alone.

    Args:
        store: The declaration.
        folder: Where its SQLite file is, such as pytest's `tmp_path`.
        url: Its PostgreSQL database instead, such as that of `fresh_postgresql`.

    Raises:
        SetupError: The store can't be opened; the message says why.
        Unavailable: The database can't be reached.
    """
    declared: dict[str, list[Store[Any]]] = {"": [store]}
    stores = open_stores(declared, StoresConfig(folder=folder, url=url))
    try:
        for error in stores.failures.values():
            raise error
        yield stores[store.name]
    finally:
        stores.close()
