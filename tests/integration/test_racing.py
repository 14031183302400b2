"""Concurrent writes of one product through different plugins, listeners and hosts (CONTRACT 4, 5).

The suites of catalog-v1 to v4 test concurrent creates through the listeners of one plugin.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import cycle, islice, product
from typing import TYPE_CHECKING, Final

import httpx
import psycopg2
import pytest
from tests.integration.kit import LANES
from tests.waiting import wait_until

from plughost.testing import running_host, store_settings

if TYPE_CHECKING:
    from plughost.testing import RunningHost

RACERS: Final = 200
PLUGINS: Final = {
    "catalog-v3": "/api/v3/products",
    "catalog-v4": "/api/v4/products",
    "catalog-crud": "/products",
}
UNLIMITED: Final = httpx.Limits(max_connections=None)


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough), "two hosts on one postgresql"]
)
def hosts(request: pytest.FixtureRequest) -> Iterator[list[RunningHost]]:
    """A host on each engine, both on one database."""
    number = 2 if request.param.startswith("two") else 1
    with store_settings(request.param.split()[-1]) as settings, ExitStack() as stack:
        yield [stack.enter_context(running_host(PLUGINS, settings=settings, strict=True)) for _ in range(number)]


def test_one_of_many_concurrent_creates_of_a_sku_wins(hosts: list[RunningHost]) -> None:
    """Of 200 creates through plugins that share a store, one is 201 and the others are 409."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                host.client(scheme=lane.scheme, http1=not lane.http2, http2=lane.http2, limits=UNLIMITED)
            )
            for host, lane in product(hosts, LANES)
        ]
        together = threading.Barrier(RACERS)

        def create(way: tuple[httpx.Client, str]) -> int:
            client, path = way
            together.wait()
            return client.post(path, json={"sku": "race", "name": "Tea", "price": 1, "stock": 1}).status_code

        ways = islice(cycle(product(clients, PLUGINS.values())), RACERS)
        with ThreadPoolExecutor(RACERS) as pool:
            assert sorted(pool.map(create, ways)) == [201] + [409] * (RACERS - 1)
        for client, path in product(clients, PLUGINS.values()):
            assert [each["sku"] for each in client.get(path).json()] == ["race"]


def test_a_put_of_an_id_that_another_uses_meanwhile_causes_no_deadlock() -> None:
    """While it waits for the product's lock, it holds none on the table, for which that lock's holder would wait."""
    insert = "INSERT INTO products (id, sku, name, price, stock) VALUES (7, 'theirs', 'Tea', 1, 1)"
    with store_settings("postgresql") as settings, ExitStack() as stack:
        client = stack.enter_context(stack.enter_context(running_host(["catalog-crud"], settings=settings)).client())
        inserting, writing, deleting, watching = (
            stack.enter_context(closing(psycopg2.connect(settings["stores"]["url"]))) for _ in range(4)
        )
        watching.autocommit = True

        def is_waiting(lock: str) -> bool:
            with watching.cursor() as cursor:
                waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = %s"
                cursor.execute(waiting, (lock,))
                return cursor.rowcount == 1

        with ThreadPoolExecutor(1) as thread:
            inserting.cursor().execute(insert)
            writing.cursor().execute("LOCK TABLE products IN ROW EXCLUSIVE MODE")
            product_json = {"sku": "ours", "name": "Tea", "price": 1, "stock": 1}
            put = thread.submit(client.put, "/products/7", json=product_json)
            wait_until(lambda: is_waiting("relation"))
            inserting.commit()
            deleting.cursor().execute("SELECT FROM products WHERE id = 7 FOR UPDATE")
            writing.commit()
            wait_until(lambda: is_waiting("transactionid"))
            deleting.cursor().execute("LOCK TABLE products IN ROW EXCLUSIVE MODE NOWAIT")
            deleting.cursor().execute("DELETE FROM products WHERE id = 7")
            deleting.commit()
            assert put.result().status_code == 201
