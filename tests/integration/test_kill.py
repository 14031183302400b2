"""A host is killed while it writes, again and again: every acknowledged record is there (CONTRACT 6).

`PLUGHOST_TEST_KILLS` sets the number of kills, one by default.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import tomlkit
from tests.host.plugins import is_running
from tests.waiting import wait_until

from plughost._runtime.control import send_command
from plughost.testing import store_settings

KILLS = int(os.environ.get("PLUGHOST_TEST_KILLS", "1"))
BATCH = 4
"""Kills with one host's data: a test has five minutes, and a host on a busy machine takes most of one for a kill."""

CREATES = 500
CLIENTS = 16
READERS = 2
PLUGHOST = (sys.executable, "-c", "from plughost._cli import main; main()")


@dataclass(frozen=True)
class Service:
    """A service that stores records.

    Attributes:
        path: Where they are.
        key: The member of a record that names it.
        body: Returns the body of a create.
        address: Returns where a record is.
    """

    path: str
    key: str
    body: Callable[[str], dict[str, Any]]
    address: Callable[[dict[str, Any]], str]


SERVICES = (
    Service("/messages", "content", lambda text: {"content": text}, lambda record: f"/messages/{record['id']}"),
    Service(
        "/api/v3/products",
        "sku",
        lambda text: {"sku": text, "name": "Tea", "price": 19.99, "stock": 1},
        lambda record: f"/api/v3/products/{record['sku']}",
    ),
)


@dataclass
class Ledger:
    """The records that a service acknowledged to its clients.

    Attributes:
        created: Id to record.
        maybe_deleted: Ids of which a delete was sent.
        deleted: Ids of which a delete was acknowledged.
    """

    created: dict[int, dict[str, Any]] = field(default_factory=dict)
    maybe_deleted: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)

    def check(self, service: Service, listed: list[dict[str, Any]]) -> None:
        """Compare with the service's list."""
        by_id = {record["id"]: record for record in listed}
        assert len(by_id) == len(listed), "an id is there twice"
        assert len({record[service.key] for record in listed}) == len(listed), "a record is there twice"
        assert not self.deleted & by_id.keys(), "an acknowledged delete was undone"
        kept = self.created.keys() - self.maybe_deleted
        assert {key: by_id.get(key) for key in kept} == {key: self.created[key] for key in kept}


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a host in its own process, and kill it at the end; return it and its address."""
    command = [*PLUGHOST, "serve", "--dev", "--config", str(folder / "plughost.toml")]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (folder / "errors.txt").open("a") as errors:
        host = subprocess.Popen(command, stderr=errors, text=True, env=environment)
    data = folder / "data"
    try:
        wait_until(lambda: host.poll() is not None or is_running(data))
        assert host.poll() is None, f"the host did not start: {(folder / 'errors.txt').read_text()}"
        listeners = send_command(data, "status")["listeners"]
        port = next(each["port"] for each in listeners if (each["site"], each["scheme"]) == ("main", "http"))
        yield host, f"http://127.0.0.1:{port}"
    finally:
        host.kill()
        host.wait()


def write(url: str, numbers: Iterator[int], ledgers: dict[str, Ledger], enough: threading.Semaphore) -> None:
    """Create records, and delete every fifth, until the host is gone."""
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        try:
            for number in numbers:
                service = SERVICES[number % 2]
                ledger = ledgers[service.path]
                created = client.post(service.path, json=service.body(f"record-{number}"))
                assert created.status_code == 201, created.text
                record = created.json()
                assert record["id"] not in ledger.created, "an id was given out twice"
                ledger.created[record["id"]] = record
                enough.release()
                if number % 10 < 2:
                    ledger.maybe_deleted.add(record["id"])
                    deleted = client.delete(service.address(record))
                    assert deleted.status_code == 204, deleted.text
                    ledger.deleted.add(record["id"])
        except httpx.TransportError:
            return


def read(url: str, ledgers: dict[str, Ledger]) -> None:
    """Read acknowledged records, newest first and repeatedly, until the host is gone."""
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        try:
            while True:
                for service in SERVICES:
                    ledger = ledgers[service.path]
                    record = next(reversed(ledger.created.copy().values()), None)
                    if record is not None:
                        found = client.get(service.address(record))
                        assert found.status_code == 200 or record["id"] in ledger.maybe_deleted, found.text
        except httpx.TransportError:
            return


@pytest.mark.parametrize("batch", range(-(-KILLS // BATCH)))
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def test_acknowledged_records_survive_kill_9(engine: str, batch: int, tmp_path: Path) -> None:
    """After each kill during concurrent creates and reads, every acknowledged record is there, none twice.

    No id is used again, even that of a deleted record.
    """
    ledgers = {service.path: Ledger() for service in SERVICES}
    with store_settings(engine) as settings:
        free = {"http_port": 0, "https_port": 0}
        sites = {"main": free, "library": free}
        table = {"data_dir": str(tmp_path / "data"), "sites": sites, "log": {"access": False}, **settings}
        (tmp_path / "plughost.toml").write_text(tomlkit.dumps(table))
        kills = min(BATCH, KILLS - batch * BATCH)
        for kill in range(kills + 1):
            with serving(tmp_path) as (host, url):
                for service in SERVICES:
                    listed = httpx.get(url + service.path, trust_env=False, timeout=30)
                    assert listed.status_code == 200, listed.text
                    ledgers[service.path].check(service, listed.json())
                if kill < kills:
                    kill_while_writing(host, url, kill, batch, ledgers)


def kill_while_writing(
    host: subprocess.Popen[str], url: str, kill: int, batch: int, ledgers: dict[str, Ledger]
) -> None:
    """Let many clients write, and kill the host meanwhile."""
    enough = threading.Semaphore(0)
    first = kill * CLIENTS * CREATES
    shares = [iter(range(start, start + CREATES)) for start in range(first, first + CLIENTS * CREATES, CREATES)]
    with ThreadPoolExecutor(CLIENTS + READERS) as pool:
        clients = [pool.submit(write, url, share, ledgers, enough) for share in shares]
        clients += [pool.submit(read, url, ledgers) for _ in range(READERS)]
        arrived = all(enough.acquire(timeout=60) for _ in range(CREATES // 2 + 17 * (batch * BATCH + kill)))
        host.kill()
        for client in clients:
            client.result()
    assert arrived, "the host was too slow"
