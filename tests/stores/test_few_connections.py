"""A PostgreSQL server that accepts too few connections, or none."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.stores.test_rows import add, skus

from plughost.stores import OpenStore, Session, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, check

if TYPE_CHECKING:
    from tests.stores.conftest import Declare

    from plughost import Store


@dataclass(frozen=True)
class Few:
    """A role with at most two connections to the server."""

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
    """Such a role, in a database created for this test."""
    url = urlsplit(postgresql)
    role = f"{url.path[1:]}_few"
    theirs = url._replace(netloc=f"{role}@{url.netloc.rpartition('@')[2]}").geturl()

    def open_(declared: Store = plain_products, **settings: float) -> OpenStore[Any]:
        stores = opening(StoresConfig(folder=tmp_path, url=theirs, **settings), declared)  # type: ignore[arg-type]  # all values are whole numbers
        open_ones.callback(stores.close)
        return stores[declared.name]

    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO {role}")
        try:
            with ExitStack() as open_ones:
                yield Few(role, theirs, cursor.execute, open_)
        finally:
            cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_refused_connection_is_waited_for(few: Few) -> None:
    """If the server refuses another connection, the present ones continue, and the caller waits for one."""
    store = few.open(patience=20)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: store.single(add, f"{number}"), range(40)))
    assert len(store.read(skus)) == 40


def test_a_connection_that_is_about_to_be_used_counts(
    few: Few, log_lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server refuses another one at that moment, the store is busy, and not lost."""
    store = few.open(patience=0.3)
    few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 1")
    is_examined, go_on, poll = threading.Event(), threading.Event(), select.poll

    def wait_and_poll() -> Any:
        is_examined.set()
        assert go_on.wait(30)
        return poll()

    monkeypatch.setattr(select, "poll", wait_and_poll)  # it shows whether an idle connection is alive
    with ThreadPoolExecutor(1) as thread:
        using = thread.submit(store.read, skus)
        try:
            assert is_examined.wait(30)
            assert not check(store).up
        finally:
            go_on.set()
        assert using.result() == []
    assert [line["event"] for line in log_lines[1:]] == ["the store is busy"]


def test_stores_share_the_connections_that_there_are(few: Few, declare: Declare) -> None:
    """One that lost all of its own gets another, though a busy one has as many as the server accepts and needs more."""
    catalog = few.open(patience=20)
    few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 4")
    notes = few.open(declare("CREATE TABLE notes (id {identity});", name="notes", entities=None, tables=("notes",)))
    both_hold, stop = threading.Barrier(3, timeout=30), threading.Event()

    def hold(session: Session) -> None:
        skus(session)  # in a transaction, which locks the table
        both_hold.wait()
        both_hold.wait()

    def use() -> None:
        while not stop.is_set():
            catalog.read(skus)

    with ThreadPoolExecutor(8) as threads:
        holding = [threads.submit(catalog.run, hold) for _ in range(2)]
        both_hold.wait()
        few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 2")
        few.rule(
            f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{few.role}' "
            "AND pid NOT IN (SELECT pid FROM pg_locks WHERE relation = 'products'::regclass)"
        )
        busy = [threads.submit(use) for _ in range(6)]
        try:
            both_hold.wait()
            assert notes.read(Session.rows, "SELECT * FROM notes") == []
        finally:
            stop.set()
    for each in holding + busy:
        each.result()


def test_a_busy_store_takes_more_connections_once_there_are(few: Few, wait_for: Callable[..., None]) -> None:
    """Operations that queue behind a refused one ask again, even if others use the present connections without end."""
    store, stop = few.open(patience=20), threading.Event()

    def use() -> None:
        while not stop.is_set():
            store.read(skus)

    few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 2")
    with ThreadPoolExecutor(6) as threads:
        busy = [threads.submit(use) for _ in range(6)]
        try:
            wait_for(lambda: store.figures["connection_waits"] > 100)
            few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 20")
            wait_for(lambda: store.figures["connections_open"] > 2)
        finally:
            stop.set()
    for each in busy:
        each.result()


def test_a_server_that_refuses_connections_for_too_long_is_unavailable(
    few: Few, psycopg2: Any, log_lines: list[dict[str, Any]]
) -> None:
    """The caller and the log have the reason, the present connections continue, and all are available afterwards."""
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
    assert [line["event"] for line in log_lines[1:]] == ["the store is busy"]
    assert "too many connections" in log_lines[1]["reason"]


def test_a_store_that_is_refused_its_second_connection_says_how_many_it_needs(
    few: Few, wait_for: Callable[..., None]
) -> None:
    """One connection is not enough to open, and PostgreSQL's message names no number."""
    few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 1")
    store = few.open(patience=0.3, pause=0.01)
    with pytest.raises(Unavailable, match="to open, a store needs 2 connections: raise the limit"):
        store.read(skus)
    few.rule(f"ALTER ROLE {few.role} CONNECTION LIMIT 2")
    wait_for(lambda: check(store).up)


def test_a_server_that_accepts_no_connection_is_reported_like_an_absent_one(
    few: Few, log_lines: list[dict[str, Any]], wait_for: Callable[..., None]
) -> None:
    """If the user may not log in any more, the log has the cause, and later callers fail at once."""
    store = few.open(patience=2, pause=0.01)
    few.rule(f"ALTER ROLE {few.role} NOLOGIN")
    for _ in range(2):
        with pytest.raises(Unavailable, match="not permitted to log in"):
            store.read(Session.rows, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert (store.state, check(store).up) == ("unavailable", False)
    lost, lasting = "the store is not available", "the store is still not available"
    wait_for(lambda: not check(store).up and log_lines[-1]["event"] == lasting)  # the next attempt after the pause
    few.rule(f"ALTER ROLE {few.role} LOGIN")
    wait_for(lambda: check(store).up)
    store.single(add, "after")
    assert [line["event"] for line in log_lines[1:]] == [lost, lasting, "the store is back"]
    assert "not permitted to log in" in log_lines[2]["reason"]


def test_without_the_right_to_create_tables_a_successful_write_proves_recovery(
    few: Few, log_lines: list[dict[str, Any]]
) -> None:
    """After losing this right, the check can't try whether there is room for a table."""
    store = few.open(patience=5)
    few.rule(f"REVOKE CREATE ON SCHEMA public FROM {few.role}")
    with pytest.raises(Unavailable):
        store.run(lambda session: [session.rows("SET TRANSACTION READ ONLY"), add(session, "a")])
    store.single(add, "b")
    assert [line["event"] for line in log_lines[1:]] == ["the store can't be written", "the store is well again"]
    assert check(store).up
