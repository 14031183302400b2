"""PostgreSQL goes away and returns: real connections are really cut."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import falcon
import pytest
from tests.stores.operations import add, count, skus

from plughost.stores import Busy, OpenStore, Unavailable, http_error, purge
from plughost.stores._config import StoresConfig
from plughost.stores._databases import database_for
from plughost.stores._manager import Stores, check, prepare_stores

if TYPE_CHECKING:
    from tests.stores.proxy import Proxy

    from plughost._api.declarations import Store

CLAIM = b"pg_try_advisory_lock_shared"


@pytest.fixture
def store(opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store) -> OpenStore[Any]:
    """An open store behind the proxy, with one product."""
    store = opening(through_proxy, products)["catalog"]
    store.run(add, "before")
    return store


def test_an_outage_is_unavailable_until_the_server_is_back(
    store: OpenStore[Any], proxy: Proxy, wait_for: Callable[..., None]
) -> None:
    """Reads and writes fail as unavailable meanwhile, and no restart is needed."""
    proxy.cut()
    for operation in (lambda: store.run(add, "during"), lambda: store.read(skus), store.ping):
        with pytest.raises(Unavailable):
            operation()
    assert (store.state, check(store).up) == ("unavailable", False)
    proxy.mend()
    wait_for(lambda: check(store).up)
    store.run(add, "after")
    assert store.read(skus) == ["after", "before"]
    assert store.state == "open"


def test_a_server_restart_between_operations_is_not_noticed(store: OpenStore[Any], proxy: Proxy) -> None:
    """Stale connections are replaced before they are used, in several threads at once."""
    with ThreadPoolExecutor(4) as threads:
        for round_ in range(3):
            list(threads.map(lambda number, round_=round_: store.run(add, f"{round_} {number}"), range(8)))
            proxy.drop()
    assert store.read(count) == 25


def test_a_refused_connection_is_tried_again(store: OpenStore[Any], proxy: Proxy) -> None:
    """A server that accepts only every third connection refuses no read and no write."""
    proxy.every = 3
    with ThreadPoolExecutor(8) as threads:
        for round_ in range(5):
            list(threads.map(lambda _: store.read(skus), range(16)))
            list(threads.map(lambda number, round_=round_: store.run(add, f"{round_} {number}"), range(16)))
            proxy.drop()
    assert store.read(count) == 81


def test_the_search_for_a_lost_database_ends_with_the_operations_time(
    store: OpenStore[Any], proxy: Proxy, postgresql: str, psycopg2: Any, wait_for: Callable[..., None]
) -> None:
    """A server that is back but admits nobody, as during recovery, starts no new wait."""
    name = urlsplit(postgresql).path[1:]
    proxy.cut()
    with pytest.raises(Unavailable):
        store.read(skus)
    with closing(psycopg2.connect(urlsplit(postgresql)._replace(path="/postgres").geturl())) as server:
        server.autocommit = True
        server.cursor().execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        proxy.mend()
        attempts, waits = proxy.attempts, store.figures["connection_waits"]
        wait_for(lambda: check(store).up or proxy.attempts > attempts)
        assert store.figures["connection_waits"] == waits
        server.cursor().execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    wait_for(lambda: check(store).up)


def test_a_read_that_loses_its_connection_is_repeated_within_its_time(
    store: OpenStore[Any], proxy: Proxy, log_lines: list[dict[str, Any]]
) -> None:
    """This holds however often connections are lost or refused meanwhile; the log has one event."""
    attempts: list[int] = []

    def read(db: Any) -> list[str]:
        attempts.append(1)
        found = skus(db)  # this statement opens a connection
        if len(attempts) < 4:
            proxy.drop()
            db.session.rows("SELECT 1")
        return found

    assert store._availability.handle is not None
    store._availability.handle.sessions.disconnect()
    proxy.attempts, proxy.every = 0, 2
    assert (store.read(read), len(attempts)) == (["before"], 4)
    assert [line["event"] for line in log_lines[1:]] == ["the store is not available", "the store is back"]


def test_a_write_cut_in_the_middle_is_rolled_back_and_not_repeated(store: OpenStore[Any], proxy: Proxy) -> None:
    """Afterwards, nothing of it is in the store."""
    attempts = []

    def add_two(db: Any) -> None:
        attempts.append(1)
        add(db, "one")
        proxy.drop()
        add(db, "two")

    with pytest.raises(Unavailable):
        store.run(add_two)
    assert store.read(skus) == ["before"]
    assert attempts == [1]


def test_a_read_cut_in_the_middle_is_repeated(store: OpenStore[Any], proxy: Proxy) -> None:
    """A reader doesn't notice a restart."""

    def read(db: Any) -> list[str]:
        skus(db)
        proxy.drop()
        return skus(db)

    assert store.read(read) == ["before"]


def test_a_claim_is_held_until_its_connection_ends(
    store: OpenStore[Any], proxy: Proxy, wait_for: Callable[..., None]
) -> None:
    """One of two hosts has it, whatever else it asks for; after an outage or its end, the other may get it."""
    mine, other = store.claims, store.database.claims()
    assert mine is not None
    assert other is not None
    assert [mine.acquire(each) for each in ("job", "more", "job")] == [True, True, True]
    assert [other.acquire(each) for each in ("job", "more")] == [False, False]
    proxy.cut()
    with pytest.raises(Unavailable):
        mine.acquire("job")
    proxy.mend()
    wait_for(lambda: other.acquire("job"))
    assert not mine.acquire("job")
    other.close()
    wait_for(lambda: mine.acquire("job"))
    assert not other.acquire("job")


def test_connections_that_the_server_ends_are_replaced(store: OpenStore[Any], postgresql: str, psycopg2: Any) -> None:
    """As at a shutdown, the server sends its reason (57P01) before it closes the connection."""

    def end_all() -> None:
        with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'plughost' AND datname = current_database()"
            )

    def add_two(db: Any) -> None:
        add(db, "one")
        end_all()
        add(db, "two")

    end_all()
    store.run(add, "after")
    with pytest.raises(Unavailable):
        store.run(add_two)
    assert store.read(skus) == ["after", "before"]


def test_a_read_only_database_is_not_ready_but_is_read(
    store: OpenStore[Any], postgresql: str, psycopg2: Any, wait_for: Any
) -> None:
    """A standby or a setting refuses writes: readiness shows this before a client is refused, and when it is over."""

    def is_written() -> bool:
        with suppress(Unavailable):
            return bool(store.run(add, "after"))
        return False

    name = urlsplit(postgresql).path[1:]
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        cursor.execute(end_all, (name,))
        wait_for(lambda: not check(store).up)
        with pytest.raises(Unavailable):
            store.run(add, "during")
        assert (store.read(skus), store.state) == (["before"], "open")
        cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")  # for new connections only
        wait_for(is_written)  # even if nobody reads its health
        assert check(store).up


def test_an_idle_host_keeps_its_claim_though_its_connections_are_ended(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, psycopg2: Any, wait_for: Any
) -> None:
    """After a restart of the server, a purge is refused even before the host's next request."""
    opening(through_proxy, products)
    claims = "FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = %s)"
    with closing(psycopg2.connect(through_proxy.url)) as server, server.cursor() as cursor:
        server.autocommit = True

        def found(what: str) -> list[Any]:
            cursor.execute(f"SELECT {what} {claims}", (server.info.dbname,))
            return [value for (value,) in cursor.fetchall()]

        first = found("pid")
        found("pg_terminate_backend(pid)")
        assert first
        wait_for(lambda: {*found("pid")} - {*first})
    with pytest.raises(Busy, match="A host serves the store catalog"):
        purge(prepare_stores({"plugin": (products,)}, through_proxy)["catalog"])


@pytest.mark.parametrize("code", ["58030", "XX001"], ids=["input and output", "damaged page"])
def test_a_server_whose_disk_fails_is_unavailable(
    store: OpenStore[Any], wait_for: Callable[..., None], code: str
) -> None:
    """Unreadable data is no defect of the plugin, and readable data is served."""

    def fail(db: Any) -> None:
        db.session.rows(f"DO $$ BEGIN RAISE EXCEPTION 'disk' USING ERRCODE = '{code}'; END $$")

    for operation in (store.read, store.run):
        with pytest.raises(Unavailable, match="disk"):
            operation(fail)
    wait_for(lambda: check(store).up)
    assert store.read(skus) == ["before"]


def test_a_problem_found_by_the_health_check_ends_with_a_good_check(
    store: OpenStore[Any], postgresql: str, psycopg2: Any, wait_for: Any, log_lines: list[dict[str, Any]]
) -> None:
    """The log says once that the store can't be written, and once that it has recovered, even without writes."""
    name = urlsplit(postgresql).path[1:]
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"

    def said(event: str) -> int:
        return sum(line["event"] == event for line in log_lines)

    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        cursor.execute(end_all, (name,))
        wait_for(lambda: not check(store).up and said("the store can't be written"))
        for _ in range(3):
            assert not check(store).up
            assert store.read(skus) == ["before"]
        assert (said("the store can't be written"), said("the store is well again")) == (1, 0)
        cursor.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")  # for new connections only
        wait_for(lambda: check(store).up)
        assert (said("the store can't be written"), said("the store is well again")) == (1, 1)


def test_a_server_that_hangs_blocks_nobody_for_ever(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, wait_for: Any
) -> None:
    """Waiting operations fail as unavailable in the end, later ones at once or at their connection attempt."""
    config = replace(through_proxy, patience=0.2, statement_timeout=0.3, connect_timeout=2)
    store = opening(config, products)["catalog"]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: store.run(add, f"before {number}"), range(8)))
        proxy.hang()
        for asked in [threads.submit(operation) for operation in (lambda: store.run(add, "during"), store.ping) * 4]:
            with pytest.raises(Unavailable):
                asked.result(60)
        proxy.go_on()
        wait_for(lambda: check(store).up)
        store.run(add, "after")
    assert "during" not in store.read(skus)


@pytest.mark.parametrize("hangs_after", [None, CLAIM], ids=["at once", "at the first query"])
def test_a_connection_attempt_ends_within_the_operations_time(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    products: Store,
    proxy: Proxy,
    hangs_after: bytes | None,
) -> None:
    """A server that accepts a connection and never answers, as if suspended, gets no further time."""
    store = opening(replace(through_proxy, connect_timeout=600), products)["catalog"]
    assert store._availability.handle is not None
    store._availability.handle.sessions.disconnect()
    proxy.hang_after = hangs_after
    if hangs_after is None:
        proxy.hang()
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(Unavailable):
                thread.submit(store.read, skus).result(25)
        finally:
            proxy.hang_after = None
            proxy.go_on()


def test_a_host_starts_if_its_connection_is_lost_before_its_use(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, wait_for: Any
) -> None:
    """This counts like a failed connection, which is no failure of the plugin."""
    proxy.cut_after = CLAIM
    stores = opening(through_proxy, products)
    assert (stores.failures, stores["catalog"].state) == ({}, "unavailable")
    proxy.cut_after = None
    wait_for(lambda: check(stores["catalog"]).up)


def test_a_host_starts_without_its_server_and_migrates_later(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, wait_for: Any
) -> None:
    """Being unreachable is no failure of the plugin: the first possible operation opens the store."""
    proxy.cut()
    stores = opening(through_proxy, products)
    assert stores.failures == {}
    assert (stores["catalog"].state, stores["catalog"].schema) == ("unavailable", None)
    proxy.mend()
    wait_for(lambda: check(stores["catalog"]).up)
    assert stores["catalog"].run(add, "a") == 1
    assert stores["catalog"].schema == 1


def test_operations_fail_at_once_during_an_outage(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy
) -> None:
    """Until the pause is over, no operation tries to connect."""
    config = StoresConfig(folder=through_proxy.folder, url=through_proxy.url, pause=3600)
    store = opening(config, products)["catalog"]
    proxy.cut()
    for _ in range(2):
        with pytest.raises(Unavailable):
            store.read(skus)
    proxy.mend()
    before = proxy.attempts
    for _ in range(20):
        with pytest.raises(Unavailable):
            store.read(skus)
    assert proxy.attempts == before


def test_a_client_gets_503_with_retry_after_and_nothing_internal(store: OpenStore[Any], proxy: Proxy) -> None:
    """Neither host names nor the driver's words reach a client."""
    proxy.cut()
    with pytest.raises(Unavailable) as caught:
        store.read(skus)
    error = http_error(caught.value)
    assert isinstance(error, falcon.HTTPServiceUnavailable)
    assert error.headers is not None
    assert int(dict(error.headers)["Retry-After"]) > 0
    assert error.description == "The data store does not answer at the moment. Try again in a few seconds."


def test_a_connection_that_is_just_ending_is_no_host(
    store: OpenStore[Any], proxy: Proxy, postgresql: str, psycopg2: Any, wait_for: Callable[..., None]
) -> None:
    """A claim on the store waits for a moment after its host has left."""
    asked = "SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%pg_try_advisory_lock(%'"

    def claim() -> None:
        with database_for("catalog", StoresConfig(folder=Path(), url=postgresql).of("catalog")).exclusive_claim():
            pass

    proxy.hang()
    store.close()
    with ThreadPoolExecutor(1) as threads, closing(psycopg2.connect(postgresql)) as other, other.cursor() as cursor:
        other.autocommit = True

        def is_asked() -> bool:
            cursor.execute(asked)
            return claiming.done() or cursor.fetchone() is not None

        claiming = threads.submit(claim)
        wait_for(is_asked)
        proxy.go_on()
        claiming.result()
