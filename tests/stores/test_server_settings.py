"""Settings of a PostgreSQL server, role or database that its administrator changed for other clients."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.stores.test_rows import add

from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, migrate_stores, prepare_stores, try_stores

if TYPE_CHECKING:
    from tests.stores.server import Server

    from plughost import Store

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


@pytest.fixture
def russian(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let servers that are started from now on know the language, or skip the test."""
    if shutil.which("localedef") is None:
        pytest.skip("messages of other languages are not tested: there is no localedef")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        command = ["localedef", "-f", "UTF-8", "-i", "ru_RU", f"{folder}/ru_RU.UTF-8"]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("messages of other languages are not tested: the sources of locales are not installed")
        monkeypatch.setenv("LOCPATH", folder)
        yield


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


def test_a_preview_that_waited_for_a_migration_sees_it(
    config: StoresConfig, plain_products: Store, administrator: Any, wait_for: Callable[..., None]
) -> None:
    """It does not try steps that another host has applied meanwhile, and reports no failure."""
    first = migrate_stores(prepare_stores({"first": (plain_products,)}, config))

    with ThreadPoolExecutor(1) as thread:
        preview = thread.submit(try_stores, prepare_stores({"second": (plain_products,)}, config))
        try:
            wait_for(lambda: first_value(administrator, WAITING))
            first.open()
            assert preview.result(30).failures == {}
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
    """It is committed when the host has started, however long this takes; another transaction was ended meanwhile."""
    set_for_all("idle_in_transaction_session_timeout = '100ms'")
    stores = migrate_stores(prepare_stores({"plugin": (plain_products,)}, config))
    wait_for_the_end_of("BEGIN")
    stores.open()
    assert stores["catalog"].state == "open"
    stores.close()


def test_a_preview_of_a_migration_has_the_limits_of_one(
    config: StoresConfig, declare: Callable[..., Store], set_for_all: Callable[[str], None]
) -> None:
    """It reports no time-out that a start would not have."""
    limits = ("statement_timeout", "idle_in_transaction_session_timeout")
    for limit in limits:
        set_for_all(f"{limit} = '1h'")
    found = " AND ".join(f"current_setting('{limit}') = '0'" for limit in limits)
    slow = declare(f"DO $$ BEGIN ASSERT {found}; END $$;\nCREATE TABLE notes (id {{identity}});", tables=("notes",))
    prepare_stores({"plugin": (slow,)}, config)["catalog"].try_migrations()


def test_numbers_stay_as_they_are(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, set_for_all: Callable[[str], None]
) -> None:
    """They are not rounded."""
    set_for_all("extra_float_digits = 0")
    store = opening(config, plain_products)["catalog"]
    assert store.read(lambda session: session.row("SELECT 0.1::float8 + 0.2::float8")) == (0.1 + 0.2,)


def test_texts_in_which_a_backslash_escapes_are_refused(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, set_for_all: Callable[[str], None]
) -> None:
    """The driver quotes by the setting with which a session began, so a client's text could end in the middle."""
    set_for_all("standard_conforming_strings = off")
    reason = str(opening(config, plain_products).failures["catalog-plugin"])
    assert "ALTER the ROLE of the URL, or its DATABASE, and SET standard_conforming_strings = on" in reason


def test_the_encoding_of_a_url_changes_no_text(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """Each text can be sent, whatever the URL says."""
    elsewhere = replace(config, url=f"{config.url}?client_encoding=LATIN1")
    store = opening(elsewhere, plain_products)["catalog"]
    store.single(add, "\u20ac")
    assert store.read(lambda session: session.row("SELECT sku FROM products")) == ("\u20ac",)


def test_a_server_notices_within_a_minute_that_a_host_has_vanished(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """As in a power cut, which closes no connection: else the claims of that host would stay for two hours."""
    names = ("idle", "interval", "count")
    idle, interval, probes = opening(config, plain_products)["catalog"].read(
        lambda session: [int(session.rows(f"SHOW tcp_keepalives_{name}")[0][0]) for name in names]
    )
    assert 0 < idle + interval * probes <= 60


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_text_is_refused(
    opening: Callable[..., Stores],
    config: StoresConfig,
    postgresql: str,
    *,
    plain_products: Store,
    administrator: Any,
    encoding: str,
) -> None:
    """Else each client that sends another text would find a fault; the reason says what to create."""
    name = f"{urlsplit(postgresql).path[1:]}_{encoding.lower()}"
    administrator.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    try:
        elsewhere = replace(config, url=urlsplit(postgresql)._replace(path=f"/{name}").geturl())
        reason = str(opening(elsewhere, plain_products).failures["catalog-plugin"])
    finally:
        administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert f"a database with the encoding {encoding}, which can't hold every text as it is: create one" in reason


@pytest.mark.usefixtures("russian")
def test_a_refused_connection_is_recognized_in_any_language(
    opening: Callable[..., Stores],
    *,
    request: pytest.FixtureRequest,
    plain_products: Store,
    psycopg2: Any,
    wait_for: Callable[..., None],
    tmp_path: Path,
    log_lines: list[dict[str, Any]],
) -> None:
    """The caller waits for one, and the store is not lost; no code of a refused connection arrives."""
    server: Server = request.getfixturevalue("server")
    with closing(psycopg2.connect(server.url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("ALTER SYSTEM SET lc_messages = 'ru_RU.UTF-8'")
        cursor.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO few")
        cursor.execute("SELECT pg_reload_conf()")
    theirs = server.url.replace("postgres@", "few@")

    def is_refused() -> bool:
        with ExitStack() as connections:
            try:
                for _ in range(3):
                    connections.enter_context(closing(psycopg2.connect(theirs)))
            except psycopg2.OperationalError as error:
                return "FATAL" not in str(error)
        return False

    wait_for(is_refused)
    store = opening(StoresConfig(folder=tmp_path, url=theirs, patience=20), plain_products)["catalog"]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: store.single(add, f"{number}"), range(40)))
    assert [line["event"] for line in log_lines] == ["the store was migrated"]
