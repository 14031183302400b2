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


class Rivals:
    """A client of a host on PostgreSQL, and other sessions of its database."""

    def __init__(self, client: httpx.Client, url: str, stack: ExitStack) -> None:
        """Open the sessions."""
        self.client = client
        self.first, self.second, self.third, self._watching = (
            stack.enter_context(closing(psycopg2.connect(url))) for _ in range(4)
        )
        self._watching.autocommit = True

    def put(self) -> int:
        """PUT a product, and return the status."""
        product_json = {"sku": "ours", "name": "Tea", "price": 1, "stock": 1}
        return self.client.put("/products/7", json=product_json).status_code

    def wait_for_waiting(self, lock: str) -> None:
        """Wait until a session waits for a lock."""
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = %s"

        def is_waiting() -> bool:
            with self._watching.cursor() as cursor:
                cursor.execute(waiting, (lock,))
                return cursor.rowcount == 1

        wait_until(is_waiting)


@pytest.fixture
def rivals() -> Iterator[Rivals]:
    """The generated CRUD, and sessions that change the same products."""
    with store_settings("postgresql") as settings, ExitStack() as stack:
        host = stack.enter_context(running_host(["catalog-crud"], settings=settings, strict=True))
        yield Rivals(stack.enter_context(host.client()), settings["stores"]["url"], stack)


def test_a_put_of_an_id_that_another_uses_meanwhile_causes_no_deadlock(rivals: Rivals) -> None:
    """While it waits for the product's lock, it doesn't hold the table, for which that lock's holder would wait."""
    inserting, writing, deleting = rivals.first, rivals.second, rivals.third
    with ThreadPoolExecutor(1) as thread:
        inserting.cursor().execute("INSERT INTO products (id, sku, name, price, stock) VALUES (7, 'a', 'b', 1, 1)")
        writing.cursor().execute("LOCK TABLE products IN ROW EXCLUSIVE MODE")
        put = thread.submit(rivals.put)
        rivals.wait_for_waiting("relation")
        inserting.commit()
        deleting.cursor().execute("SELECT FROM products WHERE id = 7 FOR UPDATE")
        writing.commit()
        rivals.wait_for_waiting("transactionid")
        deleting.cursor().execute("LOCK TABLE products IN ROW EXCLUSIVE MODE NOWAIT")
        deleting.cursor().execute("DELETE FROM products WHERE id = 7")
        deleting.commit()
        assert put.result() == 201


def test_a_put_that_has_locked_its_product_does_not_wait_for_the_table(rivals: Rivals) -> None:
    """A session that waits to lock the whole table, as the PUT of a new id does, comes after it."""
    assert rivals.put() == 201
    writing, locking = rivals.first, rivals.second
    with ThreadPoolExecutor(2) as threads:
        writing.cursor().execute("UPDATE products SET stock = 2 WHERE id = 7")
        put = threads.submit(rivals.put)
        rivals.wait_for_waiting("transactionid")
        locked = threads.submit(locking.cursor().execute, "LOCK TABLE products IN SHARE ROW EXCLUSIVE MODE")
        rivals.wait_for_waiting("relation")
        writing.commit()
        assert put.result() == 204
        locked.result()
