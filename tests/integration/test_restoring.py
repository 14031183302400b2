"""A backup is restored beside a host that has closed its damaged store."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pytest
from tests.integration.kit import HostProcess, host_process
from tests.integration.load import Load
from tests.waiting import wait_until

from plughost.testing import fresh_postgresql

if TYPE_CHECKING:
    import httpx

STORE = "messages"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The place of the stores."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    if shutil.which("pg_dump") is None:
        pytest.skip("the tools of PostgreSQL are not installed")
    with fresh_postgresql() as url:
        yield url


def _stores(folder: Path, *words: str) -> tuple[int, str]:
    """Run `plughost stores` in its own process."""
    command = [sys.executable, "-P", "-c", "from plughost._cli import main; main()", "stores", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def _file(folder: Path) -> Path:
    return folder / "data" / "stores" / f"{STORE}.sqlite3"


def _damage(folder: Path, url: str) -> None:
    if url == "sqlite":
        os.truncate(_file(folder), 0)
        return
    with closing(psycopg2.connect(url)) as server, server.cursor() as cursor:
        server.autocommit = True
        cursor.execute("DROP TABLE messages")


def _contents(host: HostProcess) -> list[str]:
    with host.client() as client:
        return sorted(each["content"] for each in client.get("/messages").json())


def test_a_host_with_a_damaged_store_serves_the_restored_backup(tmp_path: Path, url: str) -> None:
    """Notes acknowledged from then on are there after a kill, together with those of the backup."""
    settings = {"stores": {"url": url}}
    acknowledged: list[str] = []

    def create(client: httpx.Client) -> str:
        content = f"after {len(acknowledged)}"
        answer = client.post("/messages", json={"content": content})
        assert answer.status_code in {201, 503}, answer.text
        if answer.status_code == 201:
            acknowledged.append(content)
        return str(answer.status_code)

    with host_process(tmp_path, settings) as host, host.client() as client:
        assert client.post("/messages", json={"content": "kept"}).status_code == 201
        assert _stores(tmp_path, "backup", STORE, "copy")[0] == 0
        code, output = _stores(tmp_path, "restore", "--yes", STORE, "copy")
        assert (code, "stop it first, or disable the plugin there" in output) == (1, True)
        _damage(tmp_path, url)
        wait_until(lambda: client.post("/messages", json={"content": "lost"}).status_code == 503)
        with Load(host, pause=0.01) as load:
            load.add("create", create)
            wait_until(lambda: load.tally["503"] > 10 or load.failures)
            assert _stores(tmp_path, "restore", "--yes", STORE, "copy") == (0, f"Restored {STORE} with schema 1.\n")
            wait_until(lambda: load.tally["201"] > 10 or load.failures)
        assert load.failures == []
        assert client.get("/q/health/ready").status_code == 200
        host.process.kill()
        host.process.wait()
    with host_process(tmp_path, settings) as host:
        assert _contents(host) == sorted(["kept", *acknowledged])


def test_a_deleted_file_that_is_still_open_can_be_saved(tmp_path: Path) -> None:
    """It may be the last copy, so a restore is refused until the host is stopped."""
    file = _file(tmp_path)
    with host_process(tmp_path) as host, host.client() as client:
        assert client.post("/messages", json={"content": "kept"}).status_code == 201
        assert _stores(tmp_path, "backup", STORE, "copy")[0] == 0
        assert client.post("/messages", json={"content": "later"}).status_code == 201
        file.unlink()
        wait_until(lambda: client.get("/q/health/ready").status_code == 503)
        for _ in range(3):
            assert client.post("/messages", json={"content": "refused"}).status_code == 503
        code, output = _stores(tmp_path, "restore", "--yes", STORE, "copy")
        assert (code, "stop it first, or disable the plugin there" in output) == (1, True)
        held = Path("/proc", str(host.process.pid), "fd")
        saved = tmp_path / "saved"
        for descriptor in held.iterdir():
            for end in ("", "-wal"):
                if str(descriptor.readlink()).removesuffix(" (deleted)") == f"{file}{end}":
                    shutil.copyfile(descriptor, f"{saved}{end}")
        with closing(sqlite3.connect(saved)) as rescued:
            assert rescued.execute("SELECT content FROM messages ORDER BY id").fetchall() == [("kept",), ("later",)]
        assert host.stop() == 0
    assert _stores(tmp_path, "restore", "--yes", STORE, "copy")[0] == 0
    with host_process(tmp_path) as host:
        assert _contents(host) == ["kept"]
