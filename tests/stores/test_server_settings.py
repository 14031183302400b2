"""Settings of a PostgreSQL server, role or database that its administrator changed for other clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plughost import Store
from plughost.stores import Stores, StoresConfig, migrate_stores, prepare_stores

WAITING = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""


@pytest.fixture
def config(postgresql: str, tmp_path: Path) -> StoresConfig:
    """Settings of a host."""
    return StoresConfig(folder=tmp_path, url=postgresql, patience=20)


@pytest.fixture
def administrator(postgresql: str, psycopg2: Any) -> Iterator[Any]:
    """A superuser's cursor in autocommit mode."""
    with closing(psycopg2.connect(postgresql)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        yield cursor


@pytest.fixture
def set_for_all(postgresql: str, administrator: Any) -> Callable[[str], None]:
    """Return a function that sets something for all future connections to the database."""
    return lambda setting: administrator.execute(f"ALTER DATABASE {urlsplit(postgresql).path[1:]} SET {setting}")


@pytest.fixture
def wait_for_the_end_of(
    postgresql: str, psycopg2: Any, administrator: Any, wait_for: Callable[..., None]
) -> Callable[[str], None]:
    """Return a function that waits until the server has ended a session that ran a statement."""

    def wait_for_the_end(sql: str) -> None:
        with closing(psycopg2.connect(postgresql)) as session, session.cursor() as cursor:
            session.autocommit = True
            cursor.execute(sql)
            is_there = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {session.get_backend_pid()}"
            wait_for(lambda: first_value(administrator, is_there) == 0)

    return wait_for_the_end


def first_value(cursor: Any, sql: str) -> object:
    """Return the first value of a query."""
    cursor.execute(sql)
    return cursor.fetchone()[0]


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_a_host_that_waited_for_a_migration_sees_it(
    opening: Callable[..., Stores],
    config: StoresConfig,
    plain_products: Store,
    *,
    set_for_all: Callable[[str], None],
    administrator: Any,
    wait_for: Callable[..., None],
    isolation: str,
) -> None:
    """It does not repeat the migration, although its transaction began before the other one ended."""
    set_for_all(f"default_transaction_isolation = '{isolation}'")
    first = migrate_stores(prepare_stores({"first": (plain_products,)}, config))

    with ThreadPoolExecutor(1) as thread:
        second = thread.submit(opening, config, plain_products)
        try:
            wait_for(lambda: first_value(administrator, WAITING))
            first.open()
            assert second.result(30).failures == {}
        finally:
            first.close()


def test_claims_outlast_limits_of_idle_sessions(
    opening: Callable[..., Stores],
    config: StoresConfig,
    plain_products: Store,
    set_for_all: Callable[[str], None],
    wait_for_the_end_of: Callable[[str], None],
) -> None:
    """As long as a host's job runs, no other host gets its claim, though an ordinary session was ended meanwhile."""
    set_for_all("idle_session_timeout = '100ms'")
    mine, others = (opening(config, plain_products)["catalog"].claims for _ in range(2))
    assert mine is not None
    assert others is not None
    assert mine.acquire("job")
    wait_for_the_end_of("SELECT 1")
    assert not others.acquire("job")


def test_a_migration_outlasts_limits_of_transactions(
    config: StoresConfig,
    plain_products: Store,
    set_for_all: Callable[[str], None],
    wait_for_the_end_of: Callable[[str], None],
) -> None:
    """It is committed when the host has started, however long this takes; an ordinary transaction was ended meanwhile."""
    set_for_all("idle_in_transaction_session_timeout = '100ms'")
    stores = migrate_stores(prepare_stores({"plugin": (plain_products,)}, config))
    wait_for_the_end_of("BEGIN")
    stores.open()
    assert stores["catalog"].state == "open"
    stores.close()
