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
    Stores,
    StoresConfig,
    Unavailable,
    http_error,
)
from plughost.stores._looking import check

from .conftest import PRODUCTS, Declare
from .proxy import Proxy
from .test_rows import add, skus

if TYPE_CHECKING:
    from plughost import Store


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


def test_a_transaction_that_did_not_reach_its_commit_is_run_again(
    opening: Callable[..., Stores], through_proxy: StoresConfig, products: Store, proxy: Proxy
) -> None:
    """Where its only statement was lost, nothing of it can have been kept."""
    store = opening(through_proxy, products)["catalog"]
    attempts: list[int] = []

    def add_once(session: Session) -> int:
        attempts.append(1)
        proxy.cut_after = b"INSERT" if len(attempts) == 1 else None
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


def test_a_server_that_takes_few_connections_is_waited_for(
    opening: Callable[..., Stores], postgresql: str, psycopg2: Any, products: Store, tmp_path: Path
) -> None:
    """Where it refuses one, the others go on, and whoever came for one waits."""
    name = urlsplit(postgresql).path[1:]
    role = f"{name}_few"
    with closing(psycopg2.connect(postgresql)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA public TO {role}")
        try:
            url = urlsplit(postgresql)
            url = url._replace(netloc=f"{role}@{url.netloc.rpartition('@')[2]}")
            stores = opening(StoresConfig(folder=tmp_path, url=url.geturl(), patience=20), products)
            store = stores["catalog"]
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda number: store.single(add, f"{number}"), range(40)))
            assert len(store.read(skus)) == 40
            stores.close()
        finally:
            cursor.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


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
