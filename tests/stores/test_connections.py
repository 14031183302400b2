"""Connections to a database: all in use, or impossible."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.stores.test_rows import add, skus

from plughost._api.events import Event, Events
from plughost._waiting import this_thread
from plughost.stores import OutcomeUnknown, Session, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, check
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    from tests.stores.proxy import Proxy

    from plughost import Store
    from plughost.stores._claims import Claims


def test_a_wait_for_a_connection_is_limited(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """There are never more connections than the setting allows, and the error names the setting."""
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


def test_the_health_check_waits_for_no_used_connection(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """Even if all wait for a lock, the database answers; there are no more connections afterwards."""
    store = opening(replace(config, pool_size=1, patience=0), plain_products)["catalog"]

    def look(session: Session) -> tuple[bool, list[str]]:
        found = skus(session)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(check, store).result().up, found

    assert store.read(look) == (True, [])
    assert store.figures["connections_open"] == 1


def test_connections_are_given_in_the_order_of_requests(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store, wait_for: Callable[..., None]
) -> None:
    """Otherwise a thread that returns its connection and comes again would always be first, and others would starve."""
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
    assert turns == [True], "a long wait must yield the turn, even if no other thread seems to wait"


def test_idle_connections_are_closed_without_further_use(
    opening: Callable[..., Stores],
    postgresql: str,
    plain_products: Store,
    tmp_path: Path,
    wait_for: Callable[..., None],
) -> None:
    """After a peak, all but the last connection return to PostgreSQL without a further operation."""
    config = StoresConfig(folder=tmp_path, url=postgresql, statement_timeout=1, pool_idle=0.5)
    store = opening(config, plain_products)["catalog"]
    both_read = threading.Barrier(2, timeout=30)

    def read_together(session: Session) -> None:
        skus(session)
        both_read.wait()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(store.read, [read_together] * 2))
    wait_for(lambda: store.figures["connections_open"] == 1)


def test_a_transaction_begun_in_a_read_ends_with_it(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """The connection's next user neither writes into it nor reads its old data."""
    store = opening(replace(config, pool_size=1), plain_products)["catalog"]
    store.read(Session.rows, "BEGIN")
    assert store.read(skus) == []
    store.single(add, "a")
    assert store.read(skus) == ["a"]
    with store.database.administer() as other:
        assert skus(other) == ["a"]


@pytest.mark.parametrize("mode", [Mode.READ, Mode.WRITE, Mode.SINGLE])
def test_a_lock_is_waited_for_only_in_the_remaining_time(
    opening: Callable[..., Stores], postgresql: str, plain_products: Store, tmp_path: Path, mode: Mode
) -> None:
    """The server receives the limit with the statement, for reads and for writes."""
    store = opening(StoresConfig(folder=tmp_path, url=postgresql, patience=30), plain_products)["catalog"]
    assert store._availability.handle is not None
    session = store._availability.handle.sessions.session(mode, time.monotonic() + 5)
    ((lasting,),) = session.rows("SELECT setting::int FROM pg_settings WHERE name = 'lock_timeout'")
    session.undo()
    assert 0 < lasting <= 5000


@pytest.mark.parametrize("use", [lambda claims: claims.acquire("job"), lambda claims: claims.close()])
def test_claims_on_a_server_that_hangs_end(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    plain_products: Store,
    proxy: Proxy,
    use: Callable[[Claims], object],
) -> None:
    """A host that had claims, as for its jobs, can stop though the server doesn't answer."""
    claims = opening(through_proxy, plain_products)["catalog"].claims
    assert claims is not None
    assert claims.acquire("job")
    proxy.hang()
    with ThreadPoolExecutor(1) as thread:
        try:
            with suppress(Unavailable):
                thread.submit(use, claims).result(25)
        finally:
            proxy.drop()
            proxy.go_on()


def test_closed_claims_claim_nothing_any_more(
    opening: Callable[..., Stores], tmp_path: Path, postgresql: str, plain_products: Store
) -> None:
    """Otherwise a job that still runs after a reload could claim what nobody would release."""
    claims = opening(StoresConfig(folder=tmp_path, url=postgresql), plain_products)["catalog"].claims
    assert claims is not None
    assert claims.acquire("job")
    claims.close()
    assert not claims.acquire("job")


def test_an_unanswered_claim_blocks_nobody(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    plain_products: Store,
    proxy: Proxy,
    wait_for: Callable[..., None],
) -> None:
    """The code that cuts connections does not itself wait for the connection that would hold the claim."""
    store = opening(through_proxy, plain_products)["catalog"]
    assert store._availability.handle is not None
    proxy.swallow, proxy.attempts = b"pg_try_advisory_lock_shared", 0
    store._availability.handle.sessions.disconnect()
    wait_for(lambda: proxy.attempts)
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(Unavailable):
                thread.submit(store.read, skus).result(25)
        finally:
            proxy.swallow = None
            proxy.drop()
    wait_for(lambda: check(store).up)


def test_a_pooler_without_a_server_keeps_no_start_waiting(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy
) -> None:
    """It lets connections in, and then never answers: opening the store ends after `connect_timeout`."""
    proxy.swallow = b"SELECT"
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(opening, replace(through_proxy, connect_timeout=2), plain_products)
        try:
            store = opened.result(25)["catalog"]
            with pytest.raises(Unavailable, match="did not answer within 2 s"):
                store.read(skus)
        finally:
            proxy.swallow = None
            proxy.drop()


@pytest.mark.parametrize("timeout", [0, -1])
def test_an_operation_limits_a_connection_that_has_no_limit_of_its_own(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy, timeout: int
) -> None:
    """To libpq, a `connect_timeout` of zero or less in the URL means no limit; an operation still has one."""
    url = f"{through_proxy.url}?connect_timeout={timeout}"
    store = opening(replace(through_proxy, url=url), plain_products)["catalog"]
    assert store.read(skus) == []
    assert store._availability.handle is not None
    store._availability.handle.sessions.disconnect()
    proxy.hang()
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(Unavailable):
                thread.submit(store.read, skus).result(25)
        finally:
            proxy.go_on()
            proxy.drop()


def test_an_unanswered_connection_leaves_its_operation_time_for_another(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    plain_products: Store,
    proxy: Proxy,
    wait_for: Callable[..., None],
) -> None:
    """A read waits for a pooler that lost one client, and is not refused."""
    store = opening(replace(through_proxy, patience=20, connect_timeout=2), plain_products)["catalog"]
    assert store._availability.handle is not None
    store._availability.handle.sessions.release_claim()
    proxy.swallow = b"pg_try_advisory_lock_shared"
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(store.read, skus)
        try:
            wait_for(lambda: proxy.swallowed)
            proxy.swallow = None
            assert reading.result(30) == []
        finally:
            proxy.drop()


def test_several_servers_share_an_operations_time(
    opening: Callable[..., Stores],
    postgresql: str,
    plain_products: Store,
    psycopg2: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Libpq waits for each server in the URL as long: if the first one hangs, there is time for the second."""
    server = urlsplit(postgresql).netloc.rpartition("@")[2]
    config = StoresConfig(folder=Path(), url=postgresql.replace(server, f"{server},{server}"), patience=5)
    store = opening(replace(config, connect_timeout=600), plain_products)["catalog"]
    assert store._availability.handle is not None
    store._availability.handle.sessions.release_claim()
    connect, allowed = psycopg2.connect, []

    def record(**arguments: Any) -> Any:
        allowed.append(arguments["connect_timeout"])
        return connect(**arguments)

    monkeypatch.setattr(psycopg2, "connect", record)
    assert store.read(skus) == []
    assert allowed == [2]


def test_asking_for_a_commits_outcome_ends_within_the_operations_time(
    opening: Callable[..., Stores], through_proxy: StoresConfig, plain_products: Store, proxy: Proxy
) -> None:
    """A server that hangs gets no further time for this question."""
    store = opening(replace(through_proxy, statement_timeout=600), plain_products)["catalog"]
    proxy.cut_after, proxy.hang_after = b"COMMIT", b"txid_status"
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(OutcomeUnknown):
                thread.submit(store.run, add, "a").result(25)
        finally:
            proxy.cut_after = proxy.hang_after = None
            proxy.go_on()


def test_connections_are_watched_once_a_thread_can_be_started(
    opening: Callable[..., Stores],
    postgresql: str,
    plain_products: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile the store can be opened and used."""

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


def test_what_an_operation_waited_is_not_counted_for_the_next_one(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """One of three operations waits for the only connection, and its thread runs another one afterwards."""
    store = opening(replace(config, pool_size=1, patience=30), plain_products)["catalog"]
    store.events = Events()
    seen: list[Event] = []
    store.events.subscribe(seen.append, "store")
    holds, waits = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        skus(session)
        holds.set()
        waits.wait(30)

    def read_twice() -> None:
        holds.wait(30)
        this_thread.yield_turn = lambda _: waits.set()
        for _ in range(2):
            store.read(skus)

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read_twice)
        store.read(hold)
        reading.result()
    assert sorted(each.fields["waited"] > 0 for each in seen) == [False, False, True]
