"""Connections to a database: all in use, or not to be had."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.stores.test_rows import add, skus

from plughost._waiting import this_thread
from plughost.stores import (
    OpenStore,
    OutcomeUnknown,
    Session,
    Stores,
    StoresConfig,
    Unavailable,
)
from plughost.stores._inspection import check
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    from tests.stores.proxy import Proxy

    from plughost import Store


def test_who_finds_all_connections_in_use_waits(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """There are never more than the setting says, and a wait that is too long says what to set."""
    store = opening(replace(config, pool_size=2, patience=5, tuned={"catalog": {"pool_idle": 0}}), plain_products)[
        "catalog"
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: store.read(skus), range(80)))
    assert store.figures["connections_open"] <= store.figures["connections_at_most"] == 2
    both_read, go_on = threading.Barrier(3), threading.Event()

    def hold(session: Session) -> None:
        skus(session)
        both_read.wait(30)
        go_on.wait(30)

    with ThreadPoolExecutor(3) as threads:
        holding = [threads.submit(store.read, hold) for _ in range(2)]
        both_read.wait(30)
        waiting = threads.submit(store.read, skus)
        go_on.set()
        assert waiting.result() == []
        for each in holding:
            each.result()
    assert store.figures["connections_open"] == 1, "those that nobody needs are closed, but for the last"


def test_the_health_check_waits_for_nobody_who_uses_a_connection(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """All of them may wait for a lock, and the database answers; there are no more connections afterwards."""
    store = opening(replace(config, pool_size=1, patience=0), plain_products)["catalog"]

    def look(session: Session) -> tuple[bool, list[str]]:
        found = skus(session)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(check, store).result().up, found

    assert store.read(look) == (True, [])
    assert store.figures["connections_open"] == 1


def test_who_waits_for_a_connection_has_it_before_those_who_come_later(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, wait_for: Callable[..., None]
) -> None:
    """Else a thread that gives its connection back and comes again is the quickest each time, and others starve."""
    store = opening(replace(config, pool_size=1, patience=30), plain_products)["catalog"]
    order: list[str] = []
    turns: list[bool] = []
    holds = threading.Event()

    def hold(session: Session) -> None:
        skus(session)
        holds.set()
        wait_for(lambda: turns)

    def come(session: Session, name: str) -> None:
        skus(session)
        order.append(name)

    def wait() -> None:
        holds.wait(30)
        this_thread.yield_turn = turns.append
        store.read(come, "waited")

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait)
        store.read(hold)
        store.read(come, "came later")
        waiting.result()
    assert order == ["waited", "came later"]
    assert turns == [True], "who waits for more than a moment lets others have the turn, though none is seen to wait"


def test_connections_that_nobody_needs_are_closed_though_nobody_asks_for_one(
    opening: Callable[..., Stores],
    postgresql: str,
    plain_products: Store,
    tmp_path: Path,
    wait_for: Callable[..., None],
) -> None:
    """After a crowd, PostgreSQL has its connections back without a further operation, but for the last."""
    config = StoresConfig(folder=tmp_path, url=postgresql, statement_timeout=1, pool_idle=0.5)
    store = opening(config, plain_products)["catalog"]
    both_read = threading.Barrier(2, timeout=30)

    def read_together(session: Session) -> None:
        skus(session)
        both_read.wait()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(store.read, [read_together] * 2))
    wait_for(lambda: store.figures["connections_open"] == 1)


def test_a_read_that_begins_a_transaction_leaves_none_behind(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """Whoever has its connection next neither writes into that one nor reads what was there before."""
    store = opening(replace(config, pool_size=1), plain_products)["catalog"]
    store.read(Session.rows, "BEGIN")
    assert store.read(skus) == []
    store.single(add, "a")
    assert store.read(skus) == ["a"]
    with store.database.administer() as other:
        assert skus(other) == ["a"]


@dataclass(frozen=True)
class Few:
    """A role that the server gives two connections at most."""

    role: str
    url: str
    rule: Callable[[str], None]
    """Runs a statement of the server's owner."""
    open: Callable[..., OpenStore[Any]]
    """Opens a store of this role's with some settings."""


@pytest.fixture
def few(
    opening: Callable[..., Stores], postgresql: str, psycopg2: Any, plain_products: Store, tmp_path: Path
) -> Iterator[Few]:
    """Such a role in a database made for this test."""
    url = urlsplit(postgresql)
    role = f"{url.path[1:]}_few"
    theirs = url._replace(netloc=f"{role}@{url.netloc.rpartition('@')[2]}").geturl()

    def open_(**settings: float) -> OpenStore[Any]:
        stores = opening(StoresConfig(folder=tmp_path, url=theirs, **settings), plain_products)  # type: ignore[arg-type] # whole where they must be
        open_ones.callback(stores.close)
        return stores["catalog"]

    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO {role}")
        try:
            with ExitStack() as open_ones:
                yield Few(role, theirs, cursor.execute, open_)
        finally:
            cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_server_that_takes_few_connections_is_waited_for(few: Few) -> None:
    """Where it refuses one, the others go on, and whoever came for one waits."""
    store = few.open(patience=20)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: store.single(add, f"{number}"), range(40)))
    assert len(store.read(skus)) == 40


def test_a_server_that_takes_no_connection_for_too_long_is_unavailable_and_costs_none(
    few: Few, psycopg2: Any, told: list[dict[str, Any]]
) -> None:
    """Who came for one is told, and so is the log. The others go on, and all may be had again afterwards."""
    store = few.open(patience=0.3, pool_size=2)
    together = threading.Barrier(2, timeout=30)

    def hold(session: Session) -> list[str]:
        skus(session)
        together.wait()
        together.wait()
        return skus(session)

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(store.read, hold)
        together.wait()
        with closing(psycopg2.connect(few.url)):
            for _ in range(3):
                with pytest.raises(Unavailable, match="too many connections"):
                    store.read(skus)
            assert store.figures["connections_in_use"] == 1
        together.wait()
        assert holding.result() == []
    assert store.figures["connections_in_use"] == 0
    store.single(add, "next")
    assert [line["event"] for line in told[1:]] == ["the store is busy"]
    assert "too many connections" in told[1]["reason"]


def test_a_server_that_takes_not_a_single_connection_is_told_as_one_that_is_away(
    few: Few, told: list[dict[str, Any]], wait_for: Callable[..., None]
) -> None:
    """As where its user may not log in any more: the log has the cause, and nobody waits again and again."""
    store = few.open(patience=2, pause=0.01)
    few.rule(f"ALTER ROLE {few.role} NOLOGIN")
    for _ in range(2):
        with pytest.raises(Unavailable, match="not permitted to log in"):
            store.read(Session.rows, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert (store.state, check(store).up) == ("unavailable", False)
    few.rule(f"ALTER ROLE {few.role} LOGIN")
    wait_for(lambda: check(store).up)
    store.single(add, "after")
    lost, lasting = "the store is not available", "the store is still not available"
    assert [line["event"] for line in told[1:]] == [lost, lasting, "the store is back"]
    assert "not permitted to log in" in told[2]["reason"]


def test_who_may_make_no_table_any_more_is_well_again_when_writes_succeed(few: Few, told: list[dict[str, Any]]) -> None:
    """An operator took that right away after the migrations, so nobody can try whether there is room for a table."""
    store = few.open(patience=5)
    few.rule(f"REVOKE CREATE ON SCHEMA public FROM {few.role}")
    with pytest.raises(Unavailable):
        store.run(lambda session: [session.rows("SET TRANSACTION READ ONLY"), add(session, "a")])
    store.single(add, "b")
    assert [line["event"] for line in told[1:]] == ["the store can't be written", "the store is well again"]
    assert check(store).up


@pytest.mark.parametrize("mode", [Mode.READ, Mode.WRITE, Mode.SINGLE])
def test_what_has_waited_waits_for_a_lock_only_as_long_as_is_left(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path, mode: Mode
) -> None:
    """The server is told so with the statement, of reads as of writes."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql, patience=30), plain_products)["catalog"]
    assert store._availability.handle is not None
    session = store._availability.handle.sessions.session(mode, time.monotonic() + 5)
    ((lasting,),) = session.rows("SELECT setting::int FROM pg_settings WHERE name = 'lock_timeout'")
    session.undo()
    assert 0 < lasting <= 5000


def test_a_claim_that_is_never_answered_holds_nobody(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    plain_products: Store,
    proxy: Proxy,
    wait_for: Callable[..., None],
) -> None:
    """Whoever cuts the connections of others does not wait itself for the one that is to hold the claim."""
    store = opening(through_proxy, plain_products)["catalog"]
    assert store._availability.handle is not None
    proxy.swallow, proxy.attempts = b"pg_try_advisory_lock_shared", 0
    store._availability.handle.sessions.pool.disconnect()
    wait_for(lambda: proxy.attempts)
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(Unavailable):
                thread.submit(store.read, skus).result(25)
        finally:
            proxy.swallow = None
            proxy.drop()
    wait_for(lambda: check(store).up)


def test_a_commit_that_is_asked_for_in_vain_holds_nobody_for_longer_than_patience(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy
) -> None:
    """Who asks a server that hangs is given no time for a statement beside that for the operation's own."""
    store = opening(replace(through_proxy, statement_timeout=600), plain_products)["catalog"]
    proxy.cut_after, proxy.hang_after = b"COMMIT", b"txid_status"
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(OutcomeUnknown):
                thread.submit(store.run, add, "a").result(25)
        finally:
            proxy.cut_after = proxy.hang_after = None
            proxy.go_on()


def test_connections_are_watched_once_the_system_allows_a_thread(
    opening: Callable[..., Stores],
    postgresql: str,
    plain_products: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store opens and is used without meanwhile."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def is_watched() -> bool:
        return any(thread.name == "plughost-watch-store watched" for thread in threading.enumerate())

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        stores = opening(StoresConfig(folder=tmp_path, url=postgresql), replace(plain_products, name="watched"))
        assert (stores.failures, stores["watched"].read(skus)) == ({}, [])
    assert not is_watched()
    assert stores["watched"].read(skus) == []
    assert is_watched()
