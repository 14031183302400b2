"""A full disk is reported once, its end is reported once, and the host survives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stores.disks import full, small_disk
from tests.upgrades.notes_plugin import RENAME, create, install, list_notes, notes_host
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.integration.kit import HostProcess


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a host's stores, on its own small disk."""
    folder = tmp_path / "data" / "stores"
    folder.mkdir(parents=True)
    with small_disk(folder):
        yield folder


def log_lines(host: HostProcess, *, of: str) -> list[dict[str, str]]:
    """Return the lines of a host's log about a store."""
    lines = [line for line in host.errors.read_text().splitlines() if f'"{of}"' in line]
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_log_reports_a_full_disk_and_its_end_once_each(tmp_path: Path, packages: Path, disk: Path) -> None:
    """Any number of requests may fail with 503, which asks for patience and not for a retry soon; reading works."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages) as host, host.client() as client:
        before = create(host, 3)
        with full(disk):
            for _ in range(5):
                answer = client.post("/notes", json={"text": "lost"})
                assert (answer.status_code, int(answer.headers["Retry-After"])) == (503, 60)
                assert "no room" in answer.text
                assert list_notes(host) == ("1.0", before)
        after = create(host, 3)
        assert list_notes(host) == ("1.0", before | after)
        failed = log_lines(host, of="the store can't be written")
        assert len(failed) == 1, host.errors.read_text()
        assert failed[0]["store"] == "notes"
        assert failed[0]["place"] == str(disk / "notes.sqlite3")
        assert "disk is full" in failed[0]["reason"]
        assert len(log_lines(host, of="the store is well again")) == 1


def test_a_migration_without_space_changes_nothing(tmp_path: Path, packages: Path, disk: Path) -> None:
    """The reload is refused with the reason, the older version serves, and the next attempt succeeds."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages) as host:
        before = create(host, 3)
        install(packages, "2.0", RENAME, column="content", declared=", breaking=(2,)")
        with full(disk):
            report = host.ask("reload")
            assert report["swapped"] is False
            assert "migrations of the store notes failed" in json.dumps(report)
            assert list_notes(host) == ("1.0", before)
        wait_until(lambda: host.ask("reload")["ok"])
        assert list_notes(host) == ("2.0", before)
