"""What goes wrong at a bad moment: lost commits, full pools, and files that are not what they were."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from plughost._waiting import this_thread
from plughost.stores import (
    Busy,
    OpenStore,
    OutcomeUnknown,
    Session,
    StoreError,
    Stores,
    StoresConfig,
    Unavailable,
    http_error,
    prepare_stores,
    purge,
)
from plughost.stores._errors import Damaged
from plughost.stores._looking import check
from plughost.stores._sqlite_writer import Writer

from .conftest import PRODUCTS, Declare
from .proxy import Proxy
from .test_rows import INSERT, add, skus

if TYPE_CHECKING:
    from plughost import Store

PARTS = """
CREATE TABLE parts (number INTEGER UNIQUE, product BIGINT REFERENCES products (id) DEFERRABLE INITIALLY DEFERRED);
"""


@pytest.fixture
def proxy(postgresql: str) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    server = urlsplit(postgresql)
    assert server.hostname is not None
    proxy = Proxy(server.hostname, server.port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def products(declare: Declare) -> Store:
    """A store of products without entities."""
    return declare(PRODUCTS, entities=None, tables=("products",))


@pytest.fixture
def through_proxy(postgresql: str, proxy: Proxy, tmp_path: Path) -> StoresConfig:
    """Settings that lead through the proxy."""
    server = urlsplit(postgresql)
    netloc = f"{server.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"
    return StoresConfig(folder=tmp_path, url=server._replace(netloc=netloc).geturl(), patience=2, pause=0.01)


def test_a_commit_whose_answer_is_lost_is_asked_for(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy
) -> None:
    """The transaction was done, and that is what its caller is told."""
    store = opening(through_proxy, products)["catalog"]
    proxy.cut_after = b"COMMIT"
    assert store.run(add, "a") > 0
    proxy.cut_after = None
    assert store.read(skus) == ["a"]


@pytest.mark.parametrize("last", [b"INSERT", b"SELECT txid_current"])
def test_a_transaction_that_did_not_reach_its_commit_is_run_again(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy, last: bytes
) -> None:
    """Where its only statement was lost, nothing of it can have been kept."""
    store = opening(through_proxy, products)["catalog"]
    attempts: list[int] = []

    def add_once(session: Session) -> int:
        attempts.append(1)
        proxy.cut_after = last if len(attempts) == 1 else None
        return add(session, "a")

    store.run(add_once)
    assert (len(attempts), store.read(skus)) == (2, ["a"])


def test_a_write_whose_outcome_nobody_can_know_says_so(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy
) -> None:
    """A single statement whose answer is lost, and a commit after which the server can't be asked."""
    store = opening(replace(through_proxy, patience=0.5), products)["catalog"]
    proxy.cut_after = b"INSERT"
    with pytest.raises(OutcomeUnknown) as caught:
        store.single(add, "single")
    answer = http_error(caught.value)
    assert (answer.status_code, answer.title) == (503, "Outcome Unknown")
    assert "may have been done" in (answer.description or "")
    assert "Retry-After" not in dict(answer.headers or {})
    proxy.cut_after = b"COMMIT"

    def add_and_lose_the_server(session: Session) -> None:
        add(session, "commit")
        threading.Timer(0, proxy.stop_accepting).start()

    with pytest.raises(OutcomeUnknown):
        store.run(add_and_lose_the_server)
    proxy.cut_after = None
    proxy.mend()
    assert store.read(skus) == ["commit", "single"]


def test_a_table_that_was_taken_away_is_told(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """It is no defect of the plugin: the store is damaged, its check says so, and it is found again with the table."""
    store = opening(config, products)["catalog"]
    store.run(add, "a")
    with store.database.administer() as db:
        db.script("ALTER TABLE products RENAME TO away")
    for operation, args in ((store.read, (skus,)), (store.run, (add, "b")), (store.read, (skus,))):
        with pytest.raises(Damaged, match="no table products any more"):
            operation(*args)
    assert not check(store).up
    with store.database.administer() as db:
        db.script("ALTER TABLE away RENAME TO products")
    wait_for(lambda: check(store).up)
    assert store.read(skus) == ["a"]


def test_a_write_that_overran_is_not_run_again(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store
) -> None:
    """What the server cut off would take as long once more."""
    store = opening(replace(through_proxy, statement_timeout=0.2), products)["catalog"]
    attempts: list[int] = []

    def sleep(session: Session) -> None:
        attempts.append(1)
        session.rows("SELECT pg_sleep(30)")

    for operation in (store.run, store.read, store.single):
        with pytest.raises(Busy):
            operation(sleep)
    assert len(attempts) == 3


def test_who_finds_all_connections_in_use_waits(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """There are never more than the setting says, and a wait that is too long says what to set."""
    store = opening(replace(config, pool_size=2, patience=5, tuned={"catalog": {"pool_idle": 0}}), products)["catalog"]
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


def test_who_waits_for_a_connection_has_it_before_those_who_come_later(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """Else a thread that gives its connection back and comes again is the quickest each time, and others starve."""
    store = opening(replace(config, pool_size=1, patience=30), products)["catalog"]
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
        this_thread.give_way = turns.append
        store.read(come, "waited")

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait)
        store.read(hold)
        store.read(come, "came later")
        waiting.result()
    assert order == ["waited", "came later"]
    assert turns == [True], "who waits for more than a moment lets others have the turn, though none is seen to wait"


@pytest.mark.parametrize("busy", ["store", "pool"])
def test_who_waited_in_vain_is_in_nobodys_way(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, busy: str
) -> None:
    """Whoever gave up waiting, for a connection or to write, leaves the queue, and the next one has the turn."""
    store = opening(replace(config, pool_size=1), products)["catalog"]
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "held") if busy == "store" else skus(session)
        holds.set()
        go_on.wait(30)

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(store.run if busy == "store" else store.read, hold)
        assert holds.wait(30)
        for _ in range(2):
            with pytest.raises(Busy):
                store.single(add, "in vain") if busy == "store" else store.read(skus)
        go_on.set()
        holding.result()
    store.single(add, "next")
    assert store.read(skus) == (["held", "next"] if busy == "store" else ["next"])
    assert store.figures["connections_in_use"] == 0


def test_a_write_that_is_under_way_is_not_told_to_be_busy(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """Who waits for too long while another thread runs its statement learns what comes of that."""
    store = opening(replace(sqlite_config, patience=2), products)["catalog"]
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "held")
        holds.set()
        go_on.wait(30)

    def add_slowly(session: Session) -> int:
        def last(cursor: sqlite3.Cursor) -> int:
            waited = store.figures["lock_waits"]
            wait_for(lambda: store.figures["lock_waits"] > waited)  # the other one's patience is over
            return cursor.lastrowid or 0

        return session.execute(last, INSERT, ("slow", 1, 1))

    queue = _writer(store).turns.queue
    with ThreadPoolExecutor(3) as threads:
        holding = threads.submit(store.run, hold)
        assert holds.wait(30)
        slow = threads.submit(store.single, add_slowly)
        wait_for(lambda: len(queue) == 1)
        other = threads.submit(store.single, add, "other")
        wait_for(lambda: len(queue) == 2)
        go_on.set()
        holding.result()
        assert [slow.result(), other.result()] == [2, 3]
    assert store.read(skus) == ["held", "other", "slow"]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT OR ROLLBACK INTO products (sku, price, stock) VALUES ('held', 1, 1)", "UNIQUE"),
        ("INSERT INTO parts (number, product) VALUES (1, 0)", "FOREIGN KEY"),
    ],
    ids=["at once", "at the commit"],
)
def test_a_statement_that_undoes_those_it_shares_a_commit_with_is_refused_alone(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    declare: Declare,
    wait_for: Callable[..., None],
    *,
    statement: str,
    reason: str,
) -> None:
    """As on a full disk: the others are run again without it, and each is kept once."""
    declared = declare(PRODUCTS, PARTS, entities=None, tables=("products", "parts"))
    store = opening(replace(sqlite_config, patience=30), declared)["catalog"]
    holds, go_on = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        add(session, "held")
        holds.set()
        go_on.wait(30)

    refused, part = (Session.change, statement), (Session.change, "INSERT INTO parts (number, product) VALUES (1, 1)")
    operations: list[tuple[Callable[..., int], str]] = [(add, "a"), refused, (add, "b"), refused, part]
    queue = _writer(store).turns.queue
    with ThreadPoolExecutor(6) as threads:
        holding = threads.submit(store.run, hold)
        assert holds.wait(30)
        together = []
        for operation, argument in operations:
            together.append(threads.submit(store.single, operation, argument))
            wait_for(lambda: len(queue) == len(together))
        go_on.set()
        holding.result()
        for each in together[1::2]:
            with pytest.raises(StoreError, match=reason):
                each.result()
        assert [each.result() for each in together[::2]] == [2, 3, 1]
    assert store.read(skus) == ["a", "b", "held"]
    assert store.read(Session.rows, "SELECT number, product FROM parts") == [(1, 1)]
    store.single(add, "next")


def test_a_transaction_that_is_refused_at_its_commit_is_undone(
    opening: Callable[..., Stores], config: StoresConfig, declare: Declare
) -> None:
    """A constraint that is looked at by the commit keeps nothing of it, and the next one begins anew."""
    declared = declare(PRODUCTS, PARTS, entities=None, tables=("products", "parts"))
    store = opening(replace(config, pool_size=1), declared)["catalog"]
    add_part = "INSERT INTO parts (number, product) VALUES (1, 0)"
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.run(lambda session: [add(session, "undone"), session.change(add_part)])
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.single(Session.change, add_part)
    store.single(add, "a")
    store.run(add, "b")
    assert store.read(skus) == ["a", "b"]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_is_ended_from_inside_is_refused(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, end: str
) -> None:
    """On SQLite the caller is not told that all was kept, and others write on."""
    store = opening(sqlite_config, products)["catalog"]
    with pytest.raises(StoreError, match="ended from inside"):
        store.run(lambda session: [add(session, "a"), session.rows(end)])
    store.run(add, "b")
    assert store.read(skus) == (["a", "b"] if end == "COMMIT" else ["b"])


def _writer(store: OpenStore[Session]) -> Writer:
    opened = store._presence.opened
    assert opened is not None
    writer = opened.sessions.writer  # type: ignore[attr-defined] # it is SQLite
    assert isinstance(writer, Writer)
    return writer


@pytest.fixture
def two_at_most(postgresql: str, psycopg2: Any) -> Iterator[str]:
    """The URL of a database whose server takes two connections at most."""
    name = urlsplit(postgresql).path[1:]
    role = f"{name}_few"
    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO {role}")
        try:
            url = urlsplit(postgresql)
            yield url._replace(netloc=f"{role}@{url.netloc.rpartition('@')[2]}").geturl()
        finally:
            cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_server_that_takes_few_connections_is_waited_for(
    opening: Callable[..., Stores], two_at_most: str, products: Store, tmp_path: Path
) -> None:
    """Where it refuses one, the others go on, and whoever came for one waits."""
    stores = opening(StoresConfig(folder=tmp_path, url=two_at_most, patience=20), products)
    store = stores["catalog"]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: store.single(add, f"{number}"), range(40)))
    assert len(store.read(skus)) == 40
    stores.close()


def test_a_server_that_takes_no_connection_for_too_long_is_unavailable_and_costs_none(
    opening: Callable[..., Stores], two_at_most: str, psycopg2: Any, products: Store, tmp_path: Path
) -> None:
    """Who came for one is told, the others go on, and all may be had again afterwards."""
    stores = opening(StoresConfig(folder=tmp_path, url=two_at_most, patience=0.3, pool_size=2), products)
    store = stores["catalog"]
    together = threading.Barrier(2, timeout=30)

    def hold(session: Session) -> list[str]:
        skus(session)
        together.wait()
        together.wait()
        return skus(session)

    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(store.read, hold)
        together.wait()
        with closing(psycopg2.connect(two_at_most)):
            for _ in range(3):
                with pytest.raises(Unavailable, match="too many connections"):
                    store.read(skus)
            assert store.figures["connections_in_use"] == 1
        together.wait()
        assert holding.result() == []
    assert store.figures["connections_in_use"] == 0
    store.single(add, "next")
    stores.close()


@pytest.fixture
def serving(opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store) -> OpenStore[Session]:
    """An open store in a file, with products enough for several pages."""
    store: OpenStore[Session] = opening(sqlite_config, products)["catalog"]
    for number in range(40):
        store.single(add, f"{number:03}{'x' * 200}")
    return store


@pytest.fixture
def file(sqlite_config: StoresConfig) -> Path:
    """The store's file."""
    return sqlite_config.folder / "catalog.sqlite3"


def _overwrite(file: Path, start: int, data: bytes) -> None:
    # By a process of its own: the descriptor's end would drop the locks of this one.
    command = f"dd of={file} bs=1 seek={start} conv=notrunc status=none"
    with os.popen(command, "w") as pipe:
        pipe.write(data.decode("ascii"))


@pytest.mark.parametrize("how", ["deleted", "replaced", "emptied"])
def test_a_file_that_is_gone_is_noticed_and_nothing_acknowledged(
    serving: OpenStore[Session], file: Path, how: str, wait_for: Callable[..., None]
) -> None:
    """A create is refused, readiness has the cause, and a backup that is put back is served."""
    saved = file.with_name("saved")
    with (
        closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(saved)) as to,
    ):
        source.backup(to)
    if how == "emptied":
        os.truncate(file, 0)
    else:
        file.unlink()
    if how == "replaced":
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE other (id INTEGER)")
    with pytest.raises(Unavailable):
        serving.single(add, "lost")
    health = check(serving)
    assert (health.up, health.data["error"]) == (False, "Damaged")
    assert {"deleted": "deleted", "replaced": "replaced", "emptied": "atabase"}[how] in health.data["reason"]
    with pytest.raises(Unavailable):
        serving.read(skus)
    saved.rename(file)
    wait_for(lambda: check(serving).up)
    serving.single(add, "kept")
    assert len(serving.read(skus)) == 41


def test_a_file_that_is_put_back_is_served_under_a_claim_though_that_failed_at_first(
    serving: OpenStore[Session], file: Path, sqlite_config: StoresConfig, products: Store, wait_for: Callable[..., None]
) -> None:
    """Nobody purges it under the hands of the host, which had let go of the one before."""
    saved, lock = file.with_name("saved"), file.with_name(f"{file.name}.lock")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(saved)) as to:
        source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        source.backup(to)
    lock.unlink()
    lock.mkdir()
    os.truncate(file, 0)
    with pytest.raises(Unavailable):
        serving.single(add, "lost")
    subprocess.run(["cp", saved, file], check=True)  # by a process of its own, as above
    wait_for(lambda: check(serving).data["error"] == "Unavailable")
    lock.rmdir()
    wait_for(lambda: check(serving).up)
    with pytest.raises(Busy, match="A host serves"):
        purge(prepare_stores({"plugin": (products,)}, sqlite_config)["catalog"])
    assert len(serving.read(skus)) == 40


@pytest.mark.parametrize("mode", ["read", "run"])
def test_a_file_that_is_put_back_waits_for_those_who_use_the_one_before(
    serving: OpenStore[Session], file: Path, wait_for: Callable[..., None], mode: str
) -> None:
    """It is not opened beside a connection to the old one, whose write may be lost and says so."""
    saved = file.with_name("saved")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(saved)) as to:
        source.backup(to)
    together = threading.Barrier(2, timeout=30)

    def hold(session: Session) -> int:
        found = len(skus(session))
        together.wait()
        together.wait()
        return found

    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(getattr(serving, mode), hold)
        together.wait()
        saved.rename(file)
        wait_for(lambda: "still in use" in check(serving).data["reason"])
        together.wait()
        if mode == "read":
            assert holding.result() == 40
        else:
            assert isinstance(holding.exception(), OutcomeUnknown)
    wait_for(lambda: check(serving).up)
    assert len(serving.read(skus)) == 40


def test_a_header_that_is_destroyed_is_noticed(serving: OpenStore[Session], file: Path) -> None:
    """Readiness looks at it over a connection of its own, and from then on nobody gets an empty answer."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _overwrite(file, 0, b"x" * 100)
    assert not check(serving).up
    for operation in (lambda: serving.read(skus), lambda: serving.single(add, "lost")):
        with pytest.raises(Unavailable):
            operation()


def test_a_store_that_is_looked_through_at_the_start_is_not_served_damaged(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    products: Store,
    serving: OpenStore[Session],
    file: Path,
) -> None:
    """A page in the middle that is none is found before anything is served."""
    serving.close()
    damaged = replace(sqlite_config, folder=sqlite_config.folder.with_name("damaged"))
    damaged.folder.mkdir(mode=0o700)
    shutil.copy(file, damaged.folder)
    _overwrite(damaged.folder / file.name, 3 * 4096, b"x" * 4096)
    store = opening(damaged, products)["catalog"]
    assert check(store).data["error"] == "Damaged"
    with pytest.raises(Unavailable, match="damaged"):
        store.read(skus)


def test_a_header_that_asks_for_another_encoding_is_damage(serving: OpenStore[Session], file: Path) -> None:
    """What SQLite calls a plain error is not taken for a defect of the operation."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    utf_16 = (2).to_bytes(4, "big")
    subprocess.run(["dd", f"of={file}", "bs=1", "seek=56", "conv=notrunc", "status=none"], input=utf_16, check=True)
    for operation in (lambda: serving.read(skus), lambda: serving.single(add, "lost")):
        with pytest.raises(Unavailable):
            operation()
    assert not check(serving).up


def test_a_folder_that_may_not_be_looked_into_is_no_defect(
    serving: OpenStore[Session], file: Path, wait_for: Callable[..., None]
) -> None:
    """Operations and readiness say why, and all is well once it may be again."""
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    file.parent.chmod(0)
    try:
        for operation in (lambda: serving.read(skus), lambda: serving.single(add, "lost")):
            with pytest.raises(Unavailable, match="Permission denied"):
                operation()
        assert "Permission denied" in check(serving).data["reason"]
    finally:
        file.parent.chmod(0o700)
    wait_for(lambda: check(serving).up)
