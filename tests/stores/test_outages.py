"""PostgreSQL goes away and comes back: real connections, really cut."""

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

from plughost.stores import Busy, OpenStore, Stores, StoresConfig, Unavailable, http_error, prepare_stores, purge
from plughost.stores._inspection import check
from plughost.stores._manager import database_for

if TYPE_CHECKING:
    from tests.stores.proxy import Proxy

    from plughost._api.declarations import Store

CLAIM = b"pg_try_advisory_lock_shared"


@pytest.fixture
def store(opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store) -> OpenStore[Any]:
    """A store that is open through the proxy, with one product."""
    store = opening(through_proxy, products)["catalog"]
    store.run(add, "before")
    return store


def test_an_outage_is_unavailable_and_over_once_the_server_is_back(
    store: OpenStore[Any], proxy: Proxy, wait_for: Callable[..., None]
) -> None:
    """Reads and writes fail as unavailable in between, and nobody has to restart anything."""
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


def test_a_restart_of_the_server_between_operations_goes_unnoticed(store: OpenStore[Any], proxy: Proxy) -> None:
    """Stale connections are replaced before anything was done with them, for several threads at once."""
    with ThreadPoolExecutor(4) as threads:
        for round_ in range(3):
            list(threads.map(lambda number, round_=round_: store.run(add, f"{round_} {number}"), range(8)))
            proxy.drop()
    assert store.read(count) == 25


def test_who_gets_no_connection_waits_for_one(store: OpenStore[Any], proxy: Proxy) -> None:
    """A server that lets one connection in of three is no reason to refuse a read or a write."""
    proxy.every = 3
    with ThreadPoolExecutor(8) as threads:
        for round_ in range(5):
            list(threads.map(lambda _: store.read(skus), range(16)))
            list(threads.map(lambda number, round_=round_: store.run(add, f"{round_} {number}"), range(16)))
            proxy.drop()
    assert store.read(count) == 81


def test_who_looks_for_a_lost_database_waits_no_longer_than_who_needs_it(
    store: OpenStore[Any], proxy: Proxy, postgresql: str, psycopg2: Any, wait_for: Callable[..., None]
) -> None:
    """A server that is there again and lets nobody in yet, as while it recovers, is no reason to wait anew."""
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


def test_a_read_whose_connection_is_lost_is_run_again_until_its_time_is_over(
    store: OpenStore[Any], proxy: Proxy, told: list[dict[str, Any]]
) -> None:
    """However often that happens, and however often none is to be had in between; the log tells of it once."""
    attempts: list[int] = []

    def read(db: Any) -> list[str]:
        attempts.append(1)
        found = skus(db)  # which is what takes a connection
        if len(attempts) < 4:
            proxy.drop()
            db.session.rows("SELECT 1")
        return found

    assert store._availability.handle is not None
    store._availability.handle.sessions.pool.disconnect()
    proxy.attempts, proxy.every = 0, 2
    assert (store.read(read), len(attempts)) == (["before"], 4)
    assert [line["event"] for line in told[1:]] == ["the store is not available", "the store is back"]


def test_a_write_that_was_cut_in_the_middle_is_undone_and_not_repeated(store: OpenStore[Any], proxy: Proxy) -> None:
    """What had been sent of it is not there afterwards."""
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


def test_a_read_that_was_cut_in_the_middle_is_done_again(store: OpenStore[Any], proxy: Proxy) -> None:
    """A reader notices nothing of a restart."""

    def read(db: Any) -> list[str]:
        skus(db)
        proxy.drop()
        return skus(db)

    assert store.read(read) == ["before"]


def test_a_claim_is_held_until_its_connection_ends_and_is_then_for_who_asks_first(
    store: OpenStore[Any], proxy: Proxy, wait_for: Callable[..., None]
) -> None:
    """Of two hosts one has it, however often it asks; after an outage, or its end, the other may have it."""
    mine, other = store.claims, store.database.claims()
    assert mine is not None
    assert other is not None
    assert [mine.acquire("job"), mine.acquire("job"), other.acquire("job")] == [True, True, False]
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
    """As at a shutdown, the server gives its reason (57P01) before it hangs up."""

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


def test_a_database_that_is_read_only_is_not_ready_and_is_read(
    store: OpenStore[Any], postgresql: str, psycopg2: Any, wait_for: Any
) -> None:
    """A standby or a setting refuses writes: readiness says so before a client is told, and when it is over."""

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
        wait_for(is_written)  # though nobody asks for its health
        assert check(store).up


def test_a_host_that_nobody_asks_holds_its_claim_though_its_connections_are_ended(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, psycopg2: Any, wait_for: Any
) -> None:
    """Where a server was started anew at night, a purge is refused in the morning before the first request."""
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
    """It is no defect of the plugin that it can't read what it keeps, and what it can read is served."""

    def fail(db: Any) -> None:
        db.session.rows(f"DO $$ BEGIN RAISE EXCEPTION 'disk' USING ERRCODE = '{code}'; END $$")

    for operation in (store.read, store.run):
        with pytest.raises(Unavailable, match="disk"):
            operation(fail)
    wait_for(lambda: check(store).up)
    assert store.read(skus) == ["before"]


def test_what_the_health_check_found_is_over_when_it_finds_nothing(
    store: OpenStore[Any], postgresql: str, psycopg2: Any, wait_for: Any, told: list[dict[str, Any]]
) -> None:
    """The log says once that the store can't be written, and once that it is well again, though nobody writes."""
    name = urlsplit(postgresql).path[1:]
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"

    def said(event: str) -> int:
        return sum(line["event"] == event for line in told)

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


def test_a_server_that_hangs_holds_nobody(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, wait_for: Any
) -> None:
    """Operations that wait for its answer fail as unavailable in the end, and others at once or with the connecting."""
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
def test_a_connection_that_is_never_made_holds_nobody_for_longer_than_patience(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    products: Store,
    proxy: Proxy,
    hangs_after: bytes | None,
) -> None:
    """A server that accepts it and never answers, as one that was stopped in its tracks, is given no more time."""
    store = opening(replace(through_proxy, connect_timeout=600), products)["catalog"]
    assert store._availability.handle is not None
    store._availability.handle.sessions.pool.disconnect()
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


def test_a_host_starts_though_its_connection_is_lost_before_it_is_used(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, wait_for: Any
) -> None:
    """It is one that could not be made, which is no failure of the plugin."""
    proxy.cut_after = CLAIM
    stores = opening(through_proxy, products)
    assert (stores.failures, stores["catalog"].state) == ({}, "unavailable")
    proxy.cut_after = None
    wait_for(lambda: check(stores["catalog"]).up)


def test_a_host_starts_without_its_server_and_migrates_when_it_is_there(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, wait_for: Any
) -> None:
    """Unreachable is no failure of the plugin: the store opens with the first operation that can."""
    proxy.cut()
    stores = opening(through_proxy, products)
    assert stores.failures == {}
    assert (stores["catalog"].state, stores["catalog"].schema) == ("unavailable", None)
    proxy.mend()
    wait_for(lambda: check(stores["catalog"]).up)
    assert stores["catalog"].run(add, "a") == 1
    assert stores["catalog"].schema == 1


def test_during_an_outage_operations_fail_without_asking_the_server(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy
) -> None:
    """Until the pause is over, nobody waits for a connection."""
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


def test_the_answer_to_a_client_is_503_with_retry_after_and_nothing_internal(
    store: OpenStore[Any], proxy: Proxy
) -> None:
    """Neither host names nor the driver's words reach a client."""
    proxy.cut()
    with pytest.raises(Unavailable) as caught:
        store.read(skus)
    error = http_error(caught.value)
    assert isinstance(error, falcon.HTTPServiceUnavailable)
    assert error.headers is not None
    assert int(dict(error.headers)["Retry-After"]) > 0
    assert error.description == "The data store does not answer at the moment. Try again in a few seconds."


def test_a_connection_that_the_server_has_not_seen_leave_yet_is_no_host(
    store: OpenStore[Any], proxy: Proxy, postgresql: str, psycopg2: Any, wait_for: Callable[..., None]
) -> None:
    """Who wants the store alone right after its host left is patient for a moment."""
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
