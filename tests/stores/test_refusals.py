"""Refusals by the database for its own reasons: they are no plugin's defect, and the operator learns what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.stores.test_rows import add, skus

from plughost.stores import Busy, Session, SetupError, StoreError, Unavailable, http_error
from plughost.stores._config import StoresConfig
from plughost.stores._errors import Damaged
from plughost.stores._manager import Stores, check, prepare_stores, statistics, try_stores

if TYPE_CHECKING:
    from tests.stores.conftest import Declare
    from tests.stores.proxy import Proxy

    from plughost import Store


@pytest.fixture
def administrator(postgresql: str, psycopg2: Any) -> Iterator[Any]:
    """A superuser's cursor in autocommit mode."""
    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        yield cursor


@pytest.fixture
def user(administrator: Any, postgresql: str) -> Iterator[str]:
    """The name of a user without any rights."""
    name = urlsplit(postgresql).path[1:]
    administrator.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    administrator.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


@pytest.fixture
def users_config(postgresql: str, user: str, tmp_path: Path) -> StoresConfig:
    """The settings of a host that connects as this user."""
    server = urlsplit(postgresql)
    url = server._replace(netloc=f"{user}@{server.netloc.rpartition('@')[2]}").geturl()
    return StoresConfig(folder=tmp_path, url=url, patience=5, pause=0.01)


def test_a_user_without_the_right_to_create_tables_fails_only_the_plugin(
    opening: Callable[..., Stores], users_config: StoresConfig, plain_products: Store
) -> None:
    """This is the default from PostgreSQL 15 on; the reason names the store and the schema."""
    failures = opening(users_config, plain_products).failures
    assert isinstance(failures["catalog-plugin"], SetupError)
    assert str(failures["catalog-plugin"]) == (
        "store catalog: permission denied for schema public: let its owner grant the user of the URL what it lacks"
    )


def test_a_schema_that_is_missing_fails_only_the_plugin(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path
) -> None:
    """The reason says what to create or grant."""
    config = StoresConfig(folder=tmp_path, url=f"{postgresql}?options=-csearch_path%3Dmissing")
    assert str(opening(config, plain_products).failures["catalog-plugin"]) == (
        "store catalog: no schema has been selected to create in: create the schema of its search_path, or let its "
        "owner grant the user of the URL USAGE on it"
    )


@pytest.mark.parametrize(
    ("privilege", "table"),
    [
        ("INSERT", "products"),
        ("SELECT", "products"),
        ("ALL", "products, plughost_migrations"),
        ("ALL", "SEQUENCE products_id_seq"),
    ],
)
def test_a_revoked_privilege_is_reported_until_it_is_granted_again(
    opening: Callable[..., Stores],
    users_config: StoresConfig,
    *,
    user: str,
    administrator: Any,
    plain_products: Store,
    wait_for: Callable[..., None],
    privilege: str,
    table: str,
) -> None:
    """As after a restore by another user, readiness has the cause, and no restart is needed."""
    administrator.execute(f"GRANT CREATE ON SCHEMA public TO {user}")
    stores = opening(users_config, plain_products)
    store = stores["catalog"]
    administrator.execute(f"REVOKE {privilege} ON {table} FROM {user}")
    for _ in range(2):
        with pytest.raises(Damaged, match="lacks privileges on the table"):
            store.run(lambda session: [skus(session), add(session, "a")])
        assert "lacks privileges on the table" in check(store).data["reason"]
    assert statistics(store).trouble is not None, "plughost stores check tells it, too"
    administrator.execute(f"GRANT {privilege} ON {table} TO {user}")
    wait_for(lambda: check(store).up)
    store.single(add, "b")
    assert store.read(skus) == ["b"]
    stores.close()


@pytest.mark.parametrize("method", ["run", "single"])
def test_a_policy_that_forbids_a_row_is_reported(
    opening: Callable[..., Stores],
    users_config: StoresConfig,
    *,
    user: str,
    administrator: Any,
    plain_products: Store,
    log_lines: list[dict[str, Any]],
    method: str,
) -> None:
    """It is no defect of the plugin: 503, the cause in the log, and other rows are served as before."""
    administrator.execute(f"GRANT CREATE ON SCHEMA public TO {user}")
    with closing(opening(users_config, plain_products)) as stores:
        store = stores["catalog"]
        administrator.execute(
            "ALTER TABLE products ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "
            "CREATE POLICY few ON products USING (true) WITH CHECK (sku <> 'b')"
        )
        log_lines.clear()
        for _ in range(3):
            with pytest.raises(StoreError, match="row-level security policy") as caught:
                getattr(store, method)(add, "b")
            assert http_error(caught.value).status_code == 503
            assert check(store).up
        store.run(add, "a")
        assert [line["event"] for line in log_lines] == ["the store forbids a statement"]
        assert "row-level security policy" in log_lines[0]["reason"]


@pytest.mark.parametrize("code", ["XX000", "57000"], ids=["internal error", "intervention"])
def test_an_internal_error_of_the_server_is_unavailable(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path, code: str
) -> None:
    """It is no defect of the plugin."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql), plain_products)["catalog"]
    for operation in (store.read, store.run):
        with pytest.raises(Unavailable, match="of its own"):
            operation(Session.rows, f"DO $$ BEGIN RAISE EXCEPTION 'of its own' USING ERRCODE = '{code}'; END $$")


@pytest.mark.parametrize("code", ["25P03", "25P04"], ids=["idle transaction", "transaction"])
def test_a_time_limit_of_the_server_is_busy(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path, code: str
) -> None:
    """A transaction that its administrator limits was cut off, and is no defect of the plugin."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql, patience=0.2), plain_products)["catalog"]
    for operation in (store.read, store.run):
        with pytest.raises(Busy, match="too long"):
            operation(Session.rows, f"DO $$ BEGIN RAISE EXCEPTION 'too long' USING ERRCODE = '{code}'; END $$")


def test_without_the_right_to_create_tables_room_is_not_assumed(
    opening: Callable[..., Stores],
    users_config: StoresConfig,
    *,
    user: str,
    administrator: Any,
    plain_products: Store,
    log_lines: list[dict[str, Any]],
) -> None:
    """The check can't see whether the disk is still full: the log reports no recovery before a write succeeds."""
    administrator.execute(f"GRANT CREATE ON SCHEMA public TO {user}")
    with closing(opening(users_config, plain_products)) as stores:
        store = stores["catalog"]
        administrator.execute(f"REVOKE CREATE ON SCHEMA public FROM {user}")
        log_lines.clear()
        for _ in range(3):
            with pytest.raises(Unavailable):
                store.run(Session.rows, "DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$")
            assert (store.read(skus), check(store).up) == ([], True)
        store.single(add, "a")
        assert [line["event"] for line in log_lines] == ["the store can't be written", "the store is well again"]


def test_a_locked_index_of_the_log_is_busy(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """SQLite itself waits ten seconds for it, whatever its time-out, so the test raises the error."""
    store = opening(replace(sqlite_config, patience=0), plain_products)["catalog"]

    def locked(_: Session) -> None:
        error = sqlite3.OperationalError("locking protocol")
        error.sqlite_errorname = "SQLITE_PROTOCOL"
        raise error

    for operation in (store.read, store.run):
        with pytest.raises(Busy, match="locking protocol"):
            operation(locked)
    assert check(store).up


def test_a_message_of_several_lines_is_reported_in_one(
    opening: Callable[..., Stores], postgresql: str, declare: Declare, tmp_path: Path
) -> None:
    """A message in a log or a check is one line, which includes the line of the statement."""
    config = StoresConfig(folder=tmp_path, url=postgresql, patience=5, pause=0.01)
    failure = str(opening(config, declare("SELECT 1;\nCREATE  nonsense;")).failures["catalog-plugin"])
    assert failure.endswith('store catalog: syntax error at or near "nonsense"; LINE 2: CREATE nonsense;')
    away = replace(config, url="postgresql://127.0.0.1:1/nothing")
    (doubt,) = try_stores(prepare_stores({"catalog-plugin": (declare("SELECT 1;"),)}, away)).doubts
    assert "failed: Connection refused; Is the server running" in doubt


def test_nothing_is_written_outside_of_a_transaction(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path
) -> None:
    """PostgreSQL is in no transaction after its end from inside, or after a malformed first statement."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql), plain_products)["catalog"]
    with pytest.raises(StoreError, match="ended from inside"):
        store.run(lambda session: [session.rows("ROLLBACK"), add(session, "a")])

    def go_on(session: Session) -> None:
        with suppress(Exception):
            session.rows("INSRT")
        add(session, "b")

    with pytest.raises(StoreError, match="first statement failed"):
        store.run(go_on)
    with pytest.raises(StoreError, match="was begun from inside"):
        store.single(Session.rows, "BEGIN; INSERT INTO products (sku, price, stock) VALUES ('c', 1, 1)")
    assert store.read(skus) == []


@pytest.mark.parametrize("use", ["read", "run", "single"])
def test_a_message_quotes_only_the_authors_statement(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path, use: str
) -> None:
    """What the host sends before a statement on PostgreSQL is not in the error."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql), plain_products)["catalog"]
    with pytest.raises(StoreError, match=r': syntax error at or near "SELEC"; LINE \d: SELEC 1$'):
        getattr(store, use)(Session.rows, "SELEC 1")


def test_a_migration_that_fails_later_is_logged_as_a_loss_alone(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    plain_products: Store,
    *,
    proxy: Proxy,
    administrator: Any,
    log_lines: list[dict[str, Any]],
    wait_for: Callable[..., None],
) -> None:
    """An operation that fails by it is not logged, too, as if the database were busy or took no connection."""
    administrator.execute("CREATE TABLE products (other INTEGER)")
    proxy.cut()
    store = opening(through_proxy, plain_products)["catalog"]
    proxy.mend()
    wait_for(lambda: "products" in str(store.problem) or check(store).up)
    with pytest.raises(SetupError):
        store.read(skus)
    assert {line["event"] for line in log_lines} <= {"the store is not available", "the store is still not available"}
