"""SQLite files that are deleted, replaced, damaged or inaccessible."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from tests.stores.test_rows import add, skus

from plughost.stores import Busy, OpenStore, OutcomeUnknown, Session, Unavailable, purge
from plughost.stores._manager import Stores, check, prepare_stores
from plughost.stores._sqlite_files import SQLiteFile

if TYPE_CHECKING:
    from plughost import Store
    from plughost.stores._config import StoresConfig


@pytest.fixture
def file(sqlite_config: StoresConfig) -> Path:
    """The store's file."""
    return sqlite_config.folder / "catalog.sqlite3"


@contextmanager
def _read_only(file: Path) -> Iterator[None]:
    """Make a file read-only while a block runs, also for root: `os.access` asks for the real user."""
    user = os.getuid()
    file.chmod(0o400)
    if user == 0:
        os.setreuid(65534, -1)
    try:
        yield
    finally:
        os.setreuid(user, -1)
        file.chmod(0o600)


def _overwrite(file: Path, start: int, data: bytes) -> None:
    # In a separate process: closing a descriptor here would drop this process's locks.
    command = f"dd of={file} bs=1 seek={start} conv=notrunc status=none"
    with os.popen(command, "w") as pipe:
        pipe.write(data.decode("ascii"))


@pytest.mark.parametrize("how", ["deleted", "replaced", "emptied"])
def test_a_deleted_file_is_detected_before_a_write_is_acknowledged(
    serving: OpenStore[Session], file: Path, how: str, wait_for: Callable[..., None]
) -> None:
    """A create is refused, readiness has the cause, and a restored backup is served."""
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


def test_an_emptied_file_without_a_log_is_not_ready(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store, file: Path
) -> None:
    """The health check finds it before a request does, though SQLite takes an empty file for an intact database."""
    with closing(opening(sqlite_config, plain_products)) as stores:
        stores["catalog"].single(add, "before")
    store = opening(sqlite_config, plain_products)["catalog"]
    os.truncate(file, 0)
    assert not check(store).up


@pytest.mark.parametrize("method", ["single", "run"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_deleted_log_is_detected_and_its_content_is_saved(
    serving: OpenStore[Session], file: Path, how: str, method: str, wait_for: Callable[..., None]
) -> None:
    """Nothing is written to a log that would be lost at a kill; the file has all acknowledged rows."""
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
    left_over = file.parent.with_name("left over")  # as after kill -9
    subprocess.run(["cp", "-r", file.parent, left_over], check=True)  # in a separate process, as above
    with closing(sqlite3.connect(left_over / file.name)) as left:
        assert left.execute("SELECT count(*) FROM products").fetchone() == (41,)
    assert len(serving.read(skus)) == 41


@pytest.mark.parametrize("method", ["single", "run"])
@pytest.mark.parametrize("left", [0, 5000])
def test_a_shortened_log_is_detected_before_it_damages_the_file(
    serving: OpenStore[Session], file: Path, left: int, method: str, wait_for: Callable[..., None]
) -> None:
    """The loss of its content is reported; the file of the last checkpoint is served."""
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


def test_a_write_whose_file_cannot_be_checked_afterwards_is_not_repeated(
    serving: OpenStore[Session], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint shortened the file, after somebody's VACUUM, and no descriptor was free to look at that."""
    serving.single(add, "x" * 500_000)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        serving.single(add, "before")
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("DELETE FROM products WHERE length(sku) = 500000")
        other.execute("CREATE TABLE large AS SELECT zeroblob(5000000) AS content")  # for a checkpoint
        other.execute("DROP TABLE large")
        other.execute("VACUUM")
    monkeypatch.setattr(SQLiteFile, "check_integrity", Mock(side_effect=Busy("no descriptor")))
    with pytest.raises(OutcomeUnknown):
        serving.single(add, "after")
    monkeypatch.undo()
    assert serving.read(skus).count("after") == 1


def test_a_read_from_a_shortened_log_reports_the_same(
    opening: Callable[..., Stores], serving: OpenStore[Session], file: Path, wait_for: Callable[..., None]
) -> None:
    """It is not taken for a temporary fault of the disk."""
    os.truncate(file.with_name(f"{file.name}-wal"), 0)
    with pytest.raises(Unavailable, match="was shortened while in use"):
        serving.read(lambda session: session.rows("SELECT name, sku FROM products"))
    wait_for(lambda: check(serving).up)


def test_a_log_emptied_by_a_checkpoint_is_sound(serving: OpenStore[Session], file: Path) -> None:
    """Other programs may run a checkpoint, such as tools that replicate the file."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    serving.single(add, "kept")
    assert len(serving.read(skus)) == 41


def test_a_restored_file_is_claimed_even_if_that_fails_at_first(
    serving: OpenStore[Session],
    file: Path,
    sqlite_config: StoresConfig,
    plain_products: Store,
    wait_for: Callable[..., None],
) -> None:
    """Nobody can purge it while the host serves it, although the host released the old file's claim."""
    saved, lock = file.with_name("saved"), file.with_name(f"{file.name}.lock")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(saved)) as to:
        source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        source.backup(to)
    lock.unlink()
    lock.mkdir()
    os.truncate(file, 0)
    with pytest.raises(Unavailable):
        serving.single(add, "lost")
    subprocess.run(["cp", saved, file], check=True)  # in a separate process, as above
    wait_for(lambda: check(serving).data["error"] == "Unavailable")
    lock.rmdir()
    wait_for(lambda: check(serving).up)
    with pytest.raises(Busy, match="A host serves"):
        purge(prepare_stores({"plugin": (plain_products,)}, sqlite_config)["catalog"])
    assert len(serving.read(skus)) == 40


@pytest.mark.parametrize("mode", ["read", "run"])
def test_a_restored_file_waits_for_users_of_the_old_one(
    serving: OpenStore[Session], file: Path, wait_for: Callable[..., None], mode: str
) -> None:
    """It is not opened while a connection to the old file is in use; that one's write may be lost, and says so."""
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


def test_readers_detect_that_their_file_is_deleted(
    serving: OpenStore[Session], file: Path, wait_for: Callable[..., None]
) -> None:
    """Without writes, a connection to a deleted file would serve its old content for ever."""

    def is_noticed() -> bool:
        try:
            return not serving.read(skus)
        except Unavailable:
            return True

    assert serving.read(skus)
    file.unlink()
    wait_for(is_noticed)


def test_a_destroyed_header_is_detected(serving: OpenStore[Session], file: Path) -> None:
    """Readiness reads it over a separate connection, and from then on no operation gets an empty result."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _overwrite(file, 0, b"x" * 100)
    assert not check(serving).up
    for operation in (lambda: serving.read(skus), lambda: serving.single(add, "lost")):
        with pytest.raises(Unavailable):
            operation()


def test_a_damaged_store_is_not_served_after_a_full_check_at_the_start(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    plain_products: Store,
    serving: OpenStore[Session],
    file: Path,
) -> None:
    """A broken page in the middle is found before anything is served."""
    serving.close()
    damaged = replace(sqlite_config, folder=sqlite_config.folder.with_name("damaged"))
    damaged.folder.mkdir(mode=0o700)
    shutil.copy(file, damaged.folder)
    _overwrite(damaged.folder / file.name, 3 * 4096, b"x" * 4096)
    store = opening(damaged, plain_products)["catalog"]
    assert check(store).data["error"] == "Damaged"
    with pytest.raises(Unavailable, match="damaged"):
        store.read(skus)


def test_bytes_that_are_no_text_are_damage(serving: OpenStore[Session], file: Path) -> None:
    """The driver's error has no code, and is not taken for a defect of the operation."""
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("UPDATE products SET sku = CAST(x'ff' AS TEXT) WHERE id = 1")
    with pytest.raises(Unavailable, match="decode"):
        serving.read(skus)


@pytest.mark.parametrize(("place", "value"), [(44, 9), (56, 2)], ids=["format", "encoding"])
def test_a_header_that_asks_for_something_else_is_damage(
    serving: OpenStore[Session], file: Path, place: int, value: int
) -> None:
    """SQLite's generic error is not taken for a defect of the operation."""
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    write = ["dd", f"of={file}", "bs=1", f"seek={place}", "conv=notrunc", "status=none"]
    subprocess.run(write, input=value.to_bytes(4, "big"), check=True)
    for operation in (lambda: serving.read(skus), lambda: serving.single(add, "lost")):
        with pytest.raises(Unavailable):
            operation()
    assert not check(serving).up


@pytest.mark.parametrize("level", [0, 1])
def test_an_inaccessible_folder_is_no_defect(
    serving: OpenStore[Session], file: Path, level: int, wait_for: Callable[..., None]
) -> None:
    """Operations and readiness give the reason, and the store recovers with the permission."""
    folder = file.parents[level]
    folder.chmod(0)
    try:
        if os.access(folder, os.R_OK):
            pytest.skip("nothing is forbidden to root")
        for operation in (lambda: serving.read(skus), lambda: serving.single(add, "lost")) * 2:
            with pytest.raises(Unavailable, match="Permission denied"):
                operation()
        assert "Permission denied" in check(serving).data["reason"]
    finally:
        folder.chmod(0o700)
    wait_for(lambda: check(serving).up)


def test_a_file_that_became_read_only_is_reported_once_though_writes_succeed(
    serving: OpenStore[Session], file: Path, log_lines: list[dict[str, Any]]
) -> None:
    """SQLite can still write to an open file; readiness is down until a new connection can write."""
    log_lines.clear()
    with _read_only(file):
        for number in range(3):
            assert not check(serving).up
            serving.single(add, str(number))
    serving.single(add, "after")
    assert check(serving).up
    assert [each["event"] for each in log_lines] == ["the store can't be written", "the store is well again"]


def test_a_folder_that_was_moved_can_be_moved_back(
    serving: OpenStore[Session], file: Path, wait_for: Callable[..., None]
) -> None:
    """Nothing is made in its place meanwhile, where it would be in the way."""
    moved = file.parent.rename(file.parent.with_name("moved"))
    for operation in (lambda: serving.single(add, "refused"), lambda: serving.read(skus)):
        with pytest.raises(Unavailable):
            operation()
    assert "deleted" in check(serving).data["reason"]
    assert not file.parent.exists()
    moved.rename(file.parent)
    wait_for(lambda: check(serving).up)
    serving.single(add, "kept")
    assert len(serving.read(skus)) == 41
