"""`plughost stores` and `plughost purge`, on a store with two products."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from tests.stores.operations import add, count

from plughost._cli.stores import purge_command, stores_command
from plughost.stores._config import StoresConfig
from plughost.stores._manager import Stores, prepare_stores

if TYPE_CHECKING:
    import click

    from plughost._api.declarations import Store

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, tmp_path: Path, monkeypatch: Any
) -> Invoke:
    """Return a function that runs a command like the command line."""
    stores = opening(config, products)
    for sku in "ab":
        stores["catalog"].run(add, sku)
    stores.close()
    monkeypatch.chdir(tmp_path)

    def prepared(_settings: Any) -> Stores:
        return prepare_stores({"catalog-plugin": (products,)}, config)

    monkeypatch.setattr("plughost._cli.stores.stores_of_installed_plugins", prepared)

    def invoking(command: click.Command, *arguments: str, **kwargs: Any) -> Result:
        return CliRunner().invoke(command, [*arguments], **kwargs)

    return invoking


def test_the_list_shows_engine_schema_rows_and_size(invoke: Invoke, config: StoresConfig) -> None:
    """The list is a table for people and JSON for programs."""
    shown = invoke(stores_command)
    assert shown.exit_code == 0
    for part in ("catalog", "catalog-plugin", config.of("catalog").dialect, "products 2", "kB"):
        assert part in shown.stdout
    (found,) = json.loads(invoke(stores_command, "--json").stdout)
    assert (found["store"], found["schema"], found["rows"]) == ("catalog", 1, {"products": 2})


def test_purge_asks_for_the_plugins_name(invoke: Invoke, config: StoresConfig) -> None:
    """Any other answer keeps the data; the name, or `--yes`, drops it."""
    refused = invoke(purge_command, "catalog-plugin", input="yes\n")
    assert refused.exit_code == 1
    assert "products 2" in invoke(stores_command).stdout
    dropped = invoke(purge_command, "catalog-plugin", input="catalog-plugin\n")
    assert (dropped.exit_code, "Dropped the store catalog" in dropped.stdout) == (0, True)
    assert "not created yet" in invoke(stores_command).stdout
    assert invoke(purge_command, "catalog-plugin", "--yes").exit_code == 0


def test_purge_and_restore_refuse_a_store_in_use(
    invoke: Invoke, opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """The message says what to do, and comes before any question."""
    stores = opening(config, products)
    Path("copy").touch()
    purging = (purge_command, "catalog-plugin")
    for command in (purging, (*purging, "--yes"), (stores_command, "restore", "catalog", "copy")):
        refused = invoke(*command)
        assert refused.exit_code == 1
        assert "A host serves the store catalog" in refused.stderr
        assert "This cannot be undone" not in refused.output
        assert "Replace all" not in refused.output
    assert stores["catalog"].read(count) == 2


def test_purge_of_an_unknown_plugin_is_refused(invoke: Invoke) -> None:
    """A typing mistake drops nothing."""
    refused = invoke(purge_command, "catalog-plugn", "--yes")
    assert refused.exit_code == 1
    assert "No installed plugin named catalog-plugn has a store. If it was uninstalled, install" in refused.stderr


def test_the_name_of_a_backup_survives_a_power_cut(
    invoke: Invoke, config: StoresConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder entry is on the disk before the command reports the backup."""
    if config.url and shutil.which("pg_dump") is None:
        pytest.skip("the tools of PostgreSQL are not installed")
    synced, fsync = list[bool](), os.fsync

    def note(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            synced.append((tmp_path / "copy").exists())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert invoke(stores_command, "backup", "catalog", "copy").exit_code == 0
    assert synced[:1] == [True]


def test_backups_work_on_a_file_system_that_cannot_sync_folders(
    invoke: Invoke, config: StoresConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command reports the restored file, even in the place of a damaged one."""
    if config.url:
        pytest.skip("PostgreSQL's data are in no file of a host's")
    fsync = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    assert invoke(stores_command, "backup", "catalog", "copy").exit_code == 0
    (config.folder / "catalog.sqlite3").write_bytes(b"no database" * 1000)
    assert invoke(stores_command, "restore", "catalog", "copy", "--yes").exit_code == 0
    assert "products 2" in invoke(stores_command).stdout


def test_backup_and_restore_bring_purged_data_back(invoke: Invoke, config: StoresConfig, tmp_path: Path) -> None:
    """PostgreSQL's own tools are used, if they are installed."""
    if config.url and shutil.which("pg_dump") is None:
        pytest.skip("the tools of PostgreSQL are not installed")
    assert invoke(stores_command, "backup", "catalog", str(tmp_path / "copy")).exit_code == 0
    assert invoke(purge_command, "catalog-plugin", "--yes").exit_code == 0
    absent = invoke(stores_command, "restore", "catalog", "absent")
    assert (absent.exit_code, "File 'absent' does not exist" in absent.stderr) == (2, True)
    assert invoke(stores_command, "restore", "catalog", str(tmp_path / "copy"), input="n\n").exit_code == 1
    restored = invoke(stores_command, "restore", "catalog", str(tmp_path / "copy"), "--yes")
    assert restored.stdout == "Restored catalog with schema 1.\n"
    assert "products 2" in invoke(stores_command).stdout


def test_check_inspects_all_stores(invoke: Invoke, config: StoresConfig) -> None:
    """A sound store is reported as such; a damaged one is named, and the exit code is 1."""
    assert (invoke(stores_command, "check").stdout, invoke(stores_command, "check").exit_code) == (
        "catalog: in order\n",
        0,
    )
    if config.url is None:
        with (config.folder / "catalog.sqlite3").open("r+b") as file:
            file.write(b"x" * 100)
        damaged = invoke(stores_command, "check", "catalog")
        assert (damaged.exit_code, "file is not a database" in damaged.stdout) == (1, True)


def test_a_store_out_of_reach_is_named_once_and_shows_no_size(
    invoke: Invoke, products: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the list nor the check repeats its name in the reason, and what is unknown is not given as zero."""
    away = StoresConfig(folder=tmp_path, url="postgresql://nobody@127.0.0.1:1/away")

    def prepared(_settings: Any) -> Stores:
        return prepare_stores({"catalog-plugin": (products,)}, away)

    monkeypatch.setattr("plughost._cli.stores.stores_of_installed_plugins", prepared)
    listed, checked = invoke(stores_command), invoke(stores_command, "check")
    assert "0 bytes" not in listed.stdout
    assert listed.stderr.startswith("catalog: connection to server")
    assert checked.stdout.startswith("catalog: connection to server")


def test_check_names_the_tables_that_are_missing(invoke: Invoke, config: StoresConfig, products: Store) -> None:
    """Somebody dropped a table: a backup brings it back."""
    with prepare_stores({"catalog-plugin": (products,)}, config)["catalog"].database.administer() as db:
        db.script("DROP TABLE products")
    assert invoke(stores_command, "check").stdout == "catalog: it lacks the table products: restore a backup\n"


def test_an_unknown_store_is_refused_with_the_known_ones(invoke: Invoke, tmp_path: Path) -> None:
    """A typing mistake can be corrected at once."""
    refused = invoke(stores_command, "backup", "catlog", str(tmp_path / "copy"))
    assert "There is no store catlog; did you mean catalog?" in refused.stderr
