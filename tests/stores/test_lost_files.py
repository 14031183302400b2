"""SQLite files that were lost while no host ran, as after a kill."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.test_rows import add, skus

from plughost._backups import backup, restore
from plughost.stores import OpenStore, Session, purge, statistics
from plughost.stores._errors import Damaged
from plughost.stores._manager import Stores, check, prepare_stores

if TYPE_CHECKING:
    from plughost import Store
    from plughost.stores._config import StoresConfig


@pytest.mark.parametrize("cured", ["restored", "begun", "purged"])
@pytest.mark.parametrize("how", ["deleted", "deleted while served", "deleted with its log", "emptied"])
def test_a_file_lost_without_its_log_is_not_created_anew(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    plain_products: Store,
    serving: OpenStore[Session],
    *,
    wait_for: Callable[..., None],
    log_lines: list[dict[str, Any]],
    how: str,
    cured: str,
) -> None:
    """A starting host reports once what to do and changes nothing; SQLite would delete the log of an empty file."""
    copy = sqlite_config.folder.with_name("copy")
    backup(serving, copy)
    left = sqlite_config
    if how == "deleted while served":
        Path(serving.database.config.place).unlink()
        serving.close()
    else:  # as after kill -9, copied by a separate process: closing a descriptor here would drop locks
        left = replace(sqlite_config, folder=sqlite_config.folder.with_name("left over"))
        subprocess.run(["cp", "-r", sqlite_config.folder, left.folder], check=True)
        (left.folder / "catalog.sqlite3").unlink()
    file, log, index = (left.folder / f"catalog.sqlite3{end}" for end in ("", "-wal", "-shm"))
    if how == "emptied":
        file.touch()
    if how == "deleted with its log":
        log.unlink()
    left_over = {each.name: each.read_bytes() for each in (log, index) if each.exists()}
    log_lines.clear()
    store = opening(left, plain_products)["catalog"]
    for operation in (lambda: store.read(skus), lambda: store.run(add, "lost")):
        with pytest.raises(Damaged, match=rf"was (deleted|emptied).*{' and '.join(left_over)}"):
            operation()
    assert check(store).data["error"] == "Damaged"
    assert [line["event"] for line in log_lines] == ["the store is not available"]
    assert {each.name: each.read_bytes() for each in (log, index) if each.exists()} == left_over
    assert file.exists() == (how == "emptied")
    other = prepare_stores({"plugin": (plain_products,)}, left)["catalog"]
    assert f"was {how[:7]}" in (statistics(other).trouble or "")
    with pytest.raises(Damaged):
        backup(other, left.folder / "none")
    if cured == "restored":
        assert restore(other, copy) == 1
    elif cured == "begun":
        for each in (file, log, index):
            each.unlink(missing_ok=True)
    else:
        purge(other)
    wait_for(lambda: check(store).up)
    assert len(store.read(skus)) == (40 if cured == "restored" else 0)


def test_a_log_that_was_deleted_after_a_kill_is_missed(
    opening: Callable[..., Stores],
    sqlite_config: StoresConfig,
    plain_products: Store,
    serving: OpenStore[Session],
    wait_for: Callable[..., None],
) -> None:
    """Its commits were acknowledged; without it, their ids would be given again. Put back, it is served."""
    left = replace(sqlite_config, folder=sqlite_config.folder.with_name("left over"))
    subprocess.run(["cp", "-r", sqlite_config.folder, left.folder], check=True)  # in a separate process, as above
    log = left.folder / "catalog.sqlite3-wal"
    log.rename(log.with_name("saved"))
    store = opening(left, plain_products)["catalog"]
    with pytest.raises(Damaged, match="-wal was deleted, with the last commits"):
        store.run(add, "lost")
    log.with_name("saved").rename(log)
    wait_for(lambda: check(store).up)
    assert len(store.read(skus)) == 40


def test_reads_alone_report_a_file_that_was_deleted(
    serving: OpenStore[Session], wait_for: Callable[..., None], log_lines: list[dict[str, Any]]
) -> None:
    """The log says so once, without a write or a health check, and the host knows what is wrong with the store."""
    log_lines.clear()
    Path(serving.database.config.place).unlink()

    def is_noticed() -> bool:
        try:
            serving.read(skus)
        except Damaged:
            return True
        return False

    wait_for(is_noticed)
    assert is_noticed()
    assert [line["event"] for line in log_lines] == ["the store is not available"]
    assert "was deleted" in str(serving.problem)
