"""Long lists in bounded memory (CONTRACT 4), in a separate process, with both engines.

Only with `PLUGHOST_TEST_ALL=1`. With `PLUGHOST_TEST_LARGE=1`, too, the list has 1,000,000 products, else 100,000.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest
from tests.integration.kit import LANES, HostProcess, Lane, host_process

LOG: Final = logging.getLogger(__name__)
LARGE: Final = bool(os.environ.get("PLUGHOST_TEST_LARGE"))
PRODUCTS: Final = 1_000_000 if LARGE else 100_000
ROUNDS: Final = 5 if LARGE else 2
MIB: Final = 1024 * 1024
ALLOWED: Final = 100 * MIB if LARGE else 40 * MIB  # as objects in memory, 100,000 products would need more
ROWS: Final = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO products (sku, name, price, stock) SELECT printf('SKU-%07d', n), 'Product ' || n, 19.99, n FROM numbers
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped host with a given number of products in its store."""
    folder = tmp_path_factory.mktemp("large")
    with host_process(folder) as host:
        assert host.stop() == 0
    with closing(sqlite3.connect(folder / "data" / "stores" / "catalog.sqlite3")) as store, store:
        store.execute(ROWS, [PRODUCTS])
    return folder


@pytest.fixture(params=["waitress", "granian"])
def host(request: pytest.FixtureRequest, folder: Path) -> Iterator[HostProcess]:
    """A host on that folder; its HTTP listener is of each engine, its HTTPS listener granian's."""
    with host_process(folder, {"sites": {"main": {"http_engine": request.param}}}) as host:
        yield host


def peak(host: HostProcess) -> int:
    """Return the highest number of resident bytes since `forget_peak`."""
    status = Path("/proc", str(host.process.pid), "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak(host: HostProcess) -> None:
    """Reset the peak to the present resident size (proc_pid_clear_refs(5))."""
    Path("/proc", str(host.process.pid), "clear_refs").write_text("5")


def products_in(host: HostProcess, lane: Lane, path: str) -> tuple[int, float]:
    """Read a list to its end; return the number of its products, and the seconds to the first byte."""
    with host.client(lane) as client:
        begun = time.monotonic()
        with client.stream("GET", path) as answer:
            assert answer.status_code == 200
            parts = answer.iter_raw()
            tail = next(parts)
            first = time.monotonic() - begun
            found = tail.count(b'"sku"')
            for part in parts:
                tail = tail[-4:] + part
                found += tail.count(b'"sku"')
    return found, first


@pytest.mark.thorough
def test_a_long_list_is_streamed_in_bounded_memory(host: HostProcess) -> None:
    """Memory stays bounded for lists in sequence, in parallel and abandoned before their end."""
    for lane in LANES:
        with host.client(lane) as client:
            assert client.get("/api/v3/products/SKU-0000001").status_code == 200
    idle = host.usage().memory
    forget_peak(host)
    firsts = []
    with ExitStack() as stack:
        for lane in LANES:
            client = stack.enter_context(host.client(lane))
            stalled = stack.enter_context(client.stream("GET", "/api/v3/products"))
            assert next(stalled.iter_raw())
        for _ in range(ROUNDS):
            for lane in LANES:
                found, first = products_in(host, lane, "/api/v3/products")
                assert found == PRODUCTS
                firsts.append(first)
        with ThreadPoolExecutor(6) as pool:
            lists = pool.map(lambda n: products_in(host, LANES[n % 3], f"/api/v{3 + n % 2}/products"), range(6))
            assert [found for found, _ in lists] == [PRODUCTS] * 6
    with host.client() as client:
        assert client.get("/api/v3/products/SKU-0000001").status_code == 200
    LOG.info("%.1f MiB over idle; first bytes after %.0f ms", (peak(host) - idle) / MIB, max(firsts) * 1000)
    assert peak(host) - idle < ALLOWED
    if LARGE:
        assert max(firsts) < 1
