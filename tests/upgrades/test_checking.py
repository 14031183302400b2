"""Commands that only inspect try new migrations, and leave the store as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.upgrades.notes_plugin import ADD, create, install, list_notes, notes_host, plughost_command, store_files

BAD = "UPDATE notes SET text = nowhere.column_of_mine;"
UNFIT = "CREATE UNIQUE INDEX one_text ON notes (text);"


@pytest.mark.parametrize("served", [False, True], ids=["no store yet", "served"])
def test_check_and_plugins_name_the_file_and_the_reason(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any], served: bool
) -> None:
    """Whether or not the store exists, bad SQL is a problem of its plugin alone."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        if served:
            create(host, 1)
        else:
            assert host.stop() == 0
            plughost_command(tmp_path, packages, "purge", "notes", "--yes")
        before = store_files(tmp_path)
        install(packages, "2.0", ADD, BAD)
        for command, key in ((("check", "--dev"), "problems"), (("plugins",), "")):
            report = json.loads(plughost_command(tmp_path, packages, *command, "--json", code=1))
            text = json.dumps(report[key] if key else [each for each in report if each["state"] == "failed"])
            assert "0003_step.sql failed" in text
            assert "nowhere" in text
        install(packages, "2.0", ADD)
        assert "all well" in plughost_command(tmp_path, packages, "check", "--dev")
        assert store_files(tmp_path) == before
        if served:
            assert list_notes(host)[0] == "1.0"
            assert len(create(host, 1)) == 1


def test_check_tries_a_migration_with_existing_data(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """A unique index that the rows violate fails before anything is upgraded."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host, host.client() as client:
        for _ in range(2):
            client.post("/notes", json={"text": "twice"}).raise_for_status()
        install(packages, "2.0", UNFIT)
        output = plughost_command(tmp_path, packages, "check", "--dev", code=1)
        assert "0002_step.sql failed" in output
        assert len(create(host, 1)) == 1


def test_check_reports_what_it_could_not_try(tmp_path: Path, packages: Path) -> None:
    """An unreachable database is not the plugin's problem, but is reported."""
    install(packages, "1.0")
    away = {"stores": {"url": "postgresql://nobody@127.0.0.1:1/none"}}
    with notes_host(tmp_path, packages, away):
        output = plughost_command(tmp_path, packages, "check", "--dev")
    assert "warning: the store notes could not be tried" in output
    assert output.endswith("1 plugin, all well; 1 store could not be tried.\n")
