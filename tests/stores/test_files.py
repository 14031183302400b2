"""SQLite files that are not what they were: gone, replaced, damaged, or out of sight."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.test_rows import add, skus

from plughost._backups import backup, restore
from plughost.stores import (
    Busy,
    OpenStore,
    OutcomeUnknown,
    Session,
    Stores,
    StoresConfig,
    Unavailable,
    prepare_stores,
    purge,
    statistics,
)
from plughost.stores._errors import Damaged
from plughost.stores._inspection import check

if TYPE_CHECKING:
    from plughost import Store


@pytest.fixture
def serving(opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store) -> OpenStore[Session]:
    """An open store in a file, with products enough for several pages."""
    store: OpenStore[Session] = opening(sqlite_config, plain_products)["catalog"]
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


@pytest.mark.parametrize("method", ["single", "run"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_log_that_is_gone_is_noticed_and_what_it_held_is_kept(
    serving: OpenStore[Session], file: Path, how: str, method: str, wait_for: Callable[..., None]
) -> None:
    """What is written goes to no log that a killed host leaves to nobody; the file has all that was acknowledged."""
    log = file.with_name(f"{file.name}-wal")
    if how == "deleted":
        log.unlink()
    else:
        other = file.with_name("other")
        other.write_bytes(b"")
        other.rename(log)
    with pytest.raises(Unavailable, match=r"lost its log, catalog\.sqlite3-wal"):
        getattr(serving, method)(add, "refused")
    wait_for(lambda: check(serving).up)
    serving.single(add, "kept")
    left_over = file.parent.with_name("left over")  # as it is after kill -9
    subprocess.run(["cp", "-r", file.parent, left_over], check=True)  # by a process of its own, as above
    with closing(sqlite3.connect(left_over / file.name)) as left:
        assert left.execute("SELECT count(*) FROM products").fetchone() == (41,)
    assert len(serving.read(skus)) == 41


@pytest.mark.parametrize("method", ["single", "run"])
@pytest.mark.parametrize("left", [0, 5000])
def test_a_log_that_is_shortened_is_noticed_before_the_file_is_spoilt(
    serving: OpenStore[Session], file: Path, left: int, method: str, wait_for: Callable[..., None]
) -> None:
    """What it held is lost, which is told; the file is what it was at the last checkpoint, and served."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(20):
        serving.single(add, f"lost {number}{'x' * 200}")
    os.truncate(file.with_name(f"{file.name}-wal"), left)
    with pytest.raises(Unavailable, match=r"lost its log, catalog\.sqlite3-wal: shortened"):
        getattr(serving, method)(add, "refused")
    wait_for(lambda: check(serving).up)
    serving.single(add, "kept")
    assert len(serving.read(skus)) in range(41, 61)
    serving.database.check()


def test_who_reads_first_from_a_log_that_was_shortened_tells_the_same(
    opening: Callable[..., Stores], serving: OpenStore[Session], file: Path, wait_for: Callable[..., None]
) -> None:
    """It is no passing fault of the disk."""
    os.truncate(file.with_name(f"{file.name}-wal"), 0)
    with pytest.raises(Unavailable, match="was shortened while in use"):
        serving.read(lambda session: session.rows("SELECT name, sku FROM products"))
    wait_for(lambda: check(serving).up)


def test_a_log_that_a_checkpoint_emptied_is_in_order(serving: OpenStore[Session], file: Path) -> None:
    """Others may have one made, as tools that replicate the file do."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    serving.single(add, "kept")
    assert len(serving.read(skus)) == 41


def test_a_file_that_is_put_back_is_served_under_a_claim_though_that_failed_at_first(
    serving: OpenStore[Session],
    file: Path,
    sqlite_config: StoresConfig,
    plain_products: Store,
    wait_for: Callable[..., None],
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
        purge(prepare_stores({"plugin": (plain_products,)}, sqlite_config)["catalog"])
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


def test_those_who_only_read_notice_that_their_file_is_gone(
    serving: OpenStore[Session], file: Path, wait_for: Callable[..., None]
) -> None:
    """A connection to a deleted file would serve what was in it for as long as nobody writes."""

    def is_noticed() -> bool:
        try:
            return not serving.read(skus)
        except Unavailable:
            return True

    assert serving.read(skus)
    file.unlink()
    wait_for(is_noticed)


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
    plain_products: Store,
    serving: OpenStore[Session],
    file: Path,
) -> None:
    """A page in the middle that is none is found before anything is served."""
    serving.close()
    damaged = replace(sqlite_config, folder=sqlite_config.folder.with_name("damaged"))
    damaged.folder.mkdir(mode=0o700)
    shutil.copy(file, damaged.folder)
    _overwrite(damaged.folder / file.name, 3 * 4096, b"x" * 4096)
    store = opening(damaged, plain_products)["catalog"]
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


def test_a_file_that_became_read_only_is_told_once_though_it_is_written_on(
    serving: OpenStore[Session], file: Path, told: list[dict[str, Any]]
) -> None:
    """SQLite writes on to a file that it has open; readiness is down all the same, until another may be opened."""
    file.chmod(0o400)
    if os.access(file, os.W_OK):
        pytest.skip("nothing is forbidden to root")
    told.clear()
    for number in range(3):
        assert not check(serving).up
        serving.single(add, str(number))
    file.chmod(0o600)
    serving.single(add, "after")
    assert check(serving).up
    assert [each["event"] for each in told] == ["the store can't be written", "the store is well again"]


@pytest.mark.parametrize("cured", ["restored", "begun", "purged"])
@pytest.mark.parametrize("when", ["stopped", "served"])
def test_a_file_that_was_deleted_without_its_log_is_not_made_anew(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    plain_products: Store,
    serving: OpenStore[Session],
    *,
    wait_for: Callable[..., None],
    told: list[dict[str, Any]],
    when: str,
    cured: str,
) -> None:
    """A host that starts says once what to do, and touches nothing; be it that the file went while one served it."""
    copy = sqlite_config.folder.with_name("copy")
    backup(serving, copy)
    left = sqlite_config
    if when == "served":
        Path(serving.database.config.place).unlink()
        serving.close()
    else:  # as it is after kill -9, copied by a process of its own, as above
        left = replace(sqlite_config, folder=sqlite_config.folder.with_name("left over"))
        subprocess.run(["cp", "-r", sqlite_config.folder, left.folder], check=True)
        (left.folder / "catalog.sqlite3").unlink()
    log = left.folder / "catalog.sqlite3-wal"
    kept = log.read_bytes()
    told.clear()
    store = opening(left, plain_products)["catalog"]
    for operation in (lambda: store.read(skus), lambda: store.run(add, "lost")):
        with pytest.raises(Damaged, match=r"deleted, .* catalog\.sqlite3-wal: restore a backup, or delete the log"):
            operation()
    assert check(store).data["error"] == "Damaged"
    assert [line["event"] for line in told] == ["the store is not available"]
    assert (log.read_bytes(), (left.folder / "catalog.sqlite3").exists()) == (kept, False)
    other = prepare_stores({"plugin": (plain_products,)}, left)["catalog"]
    assert "was deleted" in (statistics(other).trouble or "")
    with pytest.raises(Damaged):
        backup(other, left.folder / "none")
    if cured == "restored":
        assert restore(other, copy) == 1
    elif cured == "begun":
        log.unlink()
    else:
        purge(other)
    wait_for(lambda: check(store).up)
    assert len(store.read(skus)) == (40 if cured == "restored" else 0)
