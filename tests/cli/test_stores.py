"""`plughost stores` with failing plugins: it lists all known stores, and names those that it can't list."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest
from tests.cli.conftest import STORE_PLUGIN, install_store_plugin

if TYPE_CHECKING:
    from tests.cli.conftest import Line, Serving

UNDECLARED: Final = """
from plughost import hookimpl


@hookimpl
def register_stores(context):
    raise RuntimeError("it declares nothing")
"""
ROUTES: Final = """
from plughost import hookimpl


@hookimpl
def register_routes(context):
    raise RuntimeError("no routes")
"""

SECRETIVE = """
from plughost import hookimpl
from pydantic import BaseModel, model_validator


class Settings(BaseModel):
    @model_validator(mode="after")
    def refuse(self):
        raise ValueError("url needs secret")


@hookimpl
def register_settings():
    return Settings


@hookimpl
def register_stores(context):
    return []
"""


def listed(line: Line) -> list[str]:
    """Return the names of the listed stores."""
    return [each["store"] for each in json.loads(line.run("stores", "--json").stdout)]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('broken on purpose')", "import: RuntimeError at cli_broken.py:1: broken on purpose."),
        (UNDECLARED, "register_stores: RuntimeError at cli_broken.py:7: it declares nothing."),
        (STORE_PLUGIN.replace("NAME", "kept"), "conflict: "),
    ],
    ids=["import", "hook", "conflict"],
)
def test_a_plugin_with_unknown_stores_is_named_with_the_reason(line: Line, source: str, reason: str) -> None:
    """Other plugins' stores are listed, the reason is that of `plughost plugins`, and the exit code is 1."""
    install_store_plugin(line, "kept")
    line.install("broken", source)
    result = line.run("stores")
    assert result.exit_code == 1
    assert f": its stores are unknown: {reason}" in result.stderr
    assert "cli-broken 1.0" in result.stderr or "cli-kept 1.0" in result.stderr
    assert line.run("stores", "check").exit_code == 1


def test_a_plugin_whose_settings_are_invalid_needs_the_environment_of_its_host(line: Line) -> None:
    """A secret may be set in the host's environment alone, so the reason says where a command looks."""
    line.install("secretive", SECRETIVE)
    hint = "Commands read the environment of their own shell: give it the variables that the host has."
    for command in (["stores"], ["purge", "secretive", "--yes"]):
        result = line.run(*command)
        assert result.exit_code == 1
        assert f"url needs secret. Mend the table [plugins.secretive]. {hint}" in " ".join(result.stderr.split())
    assert "the stores of secretive are unknown: see above" in result.stderr


def test_a_command_for_one_store_names_no_other_plugin(line: Line) -> None:
    """Unknown stores of others are none of its business, unless it finds no store of this name."""
    install_store_plugin(line, "kept")
    line.install("broken", UNDECLARED)
    for command in (["check", "kept"], ["backup", "kept", "file"], ["restore", "kept", "file", "--yes"]):
        assert "unknown" not in line.run("stores", *command).stderr
    assert "its stores are unknown" in line.run("stores", "backup", "broken", "file").stderr


def test_a_plugin_that_lacks_a_requirement_is_named(line: Line) -> None:
    """It was never imported, so its stores are unknown, too."""
    line.install("broken", STORE_PLUGIN, requires=("nowhere",))
    result = line.run("stores")
    assert result.exit_code == 1
    assert "it requires nowhere, and it is not installed" in result.stderr
    assert "No installed plugin has a store" not in result.stdout


def test_a_store_with_an_invalid_url_is_named(line: Line) -> None:
    """It can't be listed, and the message says what to correct."""
    install_store_plugin(line, "kept")
    line.configure('[stores.urls]\nkept = "mysql://localhost/kept"\n')
    result = line.run("stores")
    assert result.exit_code == 1
    assert "use a postgresql:// URL" in result.stderr


def test_the_stores_of_plugins_that_fail_later_are_listed(line: Line) -> None:
    """Two plugins with one prefix exclude each other, such as when either is disabled; each has its store."""
    install_store_plugin(line, "one")
    install_store_plugin(line, "two")
    line.configure('disabled = ["two"]')
    assert listed(line) == ["one", "two"]
    assert line.run("stores").exit_code == 0
    assert line.run("stores", "check", "two").exit_code == 0


def test_a_plugin_that_fails_after_declaring_its_stores_is_named(line: Line) -> None:
    """Its store is listed with the reason why nothing serves it, and can be inspected."""
    install_store_plugin(line, "kept")
    line.install(
        "kept", STORE_PLUGIN.replace("NAME", "kept").replace("    return [RouteGroup", "    raise LookupError #")
    )
    result = line.run("stores")
    assert "kept" in result.stdout
    assert "cli-kept 1.0) does not serve: register_routes: LookupError" in result.stderr
    assert result.exit_code == 0


def test_no_word_is_broken_on_a_terminal_of_80_columns(line: Line, serving: Callable[..., Serving]) -> None:
    """A table's name and its number of rows are on one line, whatever else is left out."""
    install_store_plugin(line, "keptforeveryrevokedtoken")
    serving().end(signal.SIGTERM)
    shown = line.on_terminal(120, "stores")
    assert any(str(line.folder) in row and row.endswith(".sqlite3") for row in shown), shown  # to be copied
    shown = line.on_terminal(80, "stores")
    assert any("keptforeveryrevokedtoken 0" in row for row in shown)
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize("width", [110, 120, 160])
def test_long_places_are_below_the_table(line: Line, width: int) -> None:
    """No row is longer than the terminal is wide, and each place is on one line, to be copied."""
    install_store_plugin(line, "kept")
    install_store_plugin(line, "held")
    folder = "/var/lib/" + "d" * (width - len("/var/lib//stores/kept.sqlite3") - 8)
    line.configure(f"data_dir = '{folder}'")
    shown = line.on_terminal(width, "stores")
    assert max(map(len, shown)) <= width
    assert [row.split() for row in shown[-2:]] == [
        [each, f"{folder}/stores/{each}.sqlite3"] for each in ("held", "kept")
    ]


def test_a_failing_plugin_without_stores_is_not_named(line: Line) -> None:
    """Without `register_stores` there is nothing to report."""
    install_store_plugin(line, "kept")
    line.install("broken", ROUTES)
    result = line.run("stores")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_store_with_only_its_log_left_is_damaged(line: Line, serving: Callable[..., Serving]) -> None:
    """The log of a killed host shows that the file was deleted, and a backup can replace it."""
    install_store_plugin(line, "kept")
    line.configure('data_dir = "data"')
    host = serving()
    backup = str(line.folder / "backup")
    assert line.run("stores", "backup", "kept", backup).exit_code == 0
    host.end(signal.SIGKILL)
    (line.folder / "data" / "stores" / "kept.sqlite3").unlink()
    result = line.run("stores", "check")
    assert result.exit_code == 1
    left = "kept.sqlite3-wal and kept.sqlite3-shm"
    assert f"kept.sqlite3 was deleted: restore a backup, or delete {left}, too" in result.stdout
    assert line.run("stores").exit_code == 1
    assert line.run("stores", "restore", "--yes", "kept", backup).exit_code == 0
    assert line.run("stores", "check").stdout == "kept: in order\n"


def test_check_reports_a_deleted_file(line: Line, serving: Callable[..., Serving]) -> None:
    """A store that was never opened is no problem, nor in order; a served one whose file is deleted is a problem."""
    install_store_plugin(line, "kept")
    result = line.run("stores", "check")
    assert (result.exit_code, result.stdout) == (0, "kept: not created yet\n")
    host = serving()
    (file,) = line.folder.rglob("kept.sqlite3")
    for each in (file, *file.parent.glob("kept.sqlite3-*")):  # its log may be missing, too
        each.unlink()
    result = line.run("stores", "check")
    assert result.exit_code == 1
    told_in_one = result.stdout.replace("\n", " ")
    assert f"kept: a host serves it, but its file is gone: put {file} or a backup back" in told_in_one
    host.end(signal.SIGTERM)
    assert line.run("stores", "check").exit_code == 0


def test_status_names_a_store_that_is_not_available(line: Line, serving: Callable[..., Serving]) -> None:
    """Its plugin is active, and its requests are 503, until the store is mended."""
    install_store_plugin(line, "kept")
    file = line.folder / "plughost-data" / "stores" / "kept.sqlite3"
    file.mkdir(parents=True)
    serving()
    assert line.run("stores", "check").exit_code == 1
    (plugin,) = json.loads(line.run("status", "--json").output)["plugins"]
    told = f"the store kept is not available: {file} is a folder: move it away, and put the store's file or a backup"
    assert (plugin["state"], len(plugin["trouble"])) == ("active", 1)
    assert plugin["trouble"][0].startswith(told)
    assert "kept is not available" in line.run("status").output


def test_status_names_a_store_out_of_reach_once(line: Line, serving: Callable[..., Serving]) -> None:
    """The database's reason follows at once."""
    pytest.importorskip("psycopg2")
    install_store_plugin(line, "kept")
    shutil.copytree(line.packages / "kept" / "sqlite", line.packages / "kept" / "postgresql")
    line.configure("[stores]\nurl = 'postgresql://nobody@127.0.0.1:1/away'")
    serving()
    (plugin,) = json.loads(line.run("status", "--json").output)["plugins"]
    assert plugin["trouble"][0].startswith("the store kept is not available: connection to server")


def test_check_reports_an_edited_migration(line: Line) -> None:
    """If it was already applied, a warning names the file and what to do; it is no problem."""
    install_store_plugin(line, "kept")
    line.serve().end(signal.SIGTERM)
    assert line.run("check", "--dev").output == "1 plugin, all well.\n"
    (line.packages / "kept" / "sqlite" / "0001_first.sql").write_text("CREATE TABLE kept (id INTEGER, text TEXT);")
    result = line.run("check", "--dev")
    assert (result.exit_code, result.output.count("warning: ")) == (0, 1)
    assert "the store kept: the migration sqlite/0001_first.sql was edited after it had been applied" in result.output
    assert "Undo the edit" in result.output


def test_a_check_copies_no_store_without_a_new_migration(line: Line) -> None:
    """However large the store is, the check takes no time and no room: here, no file may have more than 1 MiB."""
    install_store_plugin(line, "kept")
    line.serve().end(signal.SIGTERM)
    (file,) = line.folder.rglob("kept.sqlite3")
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE filler AS SELECT zeroblob(8388608) AS bytes")
    check = line.start("check", "--dev", under=("sh", "-c", 'ulimit -f 2048; exec "$@"', "sh"))
    assert check.communicate()[0] == "1 plugin, all well.\n"


def test_a_failed_migration_names_its_plugin_and_its_store_once(line: Line) -> None:
    """A row of the check is short."""
    install_store_plugin(line, "kept")
    (line.packages / "kept" / "sqlite" / "0002_wrong.sql").write_text("ALTER TABLE nothing ADD COLUMN text TEXT;")
    message = line.run("check", "--dev").output.splitlines()[0]
    assert (message.count("plugin"), message.count("store kept"), message.count("(cli-kept")) == (0, 1, 1)
