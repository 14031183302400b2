"""HTTP tests that every version of the catalog must pass (CONTRACT 2 and 4). They need pytest and hypothesis.

The tests of a version inherit these classes and set what differs:

```python
from plughost_catalog_core.testing import StoredProductTests

class TestProducts(StoredProductTests):
    plugin, prefix = "catalog-v5", "/api/v5/products"
    shown = '{{"sku":"{sku}","name":"Tea","price":19.99,"stock":3}}'
```

Pass this module's name to `pytest.register_assert_rewrite` in a `conftest.py`, so that failures show the values.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plughost.testing import RunningHost, running_host, store_settings
from plughost_catalog_core.rules import sku_path

__all__ = ["AWKWARD_SKUS", "CatalogTests", "OneProductTests", "StoredProductTests", "product"]

AWKWARD_SKUS: Final = (
    "/",
    "a/",
    "/a",
    "a//b/",
    ".",
    "..",
    "a/../b",
    "?",
    "a?b=c",
    "%",
    "%2F",
    "%25",
    "a b",
    "+",
    "#",
    ";",
    "\x01\r\n",
)
"""SKUs that must be percent-encoded in a path."""

_TEXT: Final = "text/plain; charset=utf-8"
_BATCH: Final = 1000  # a longer list is streamed without Content-Length
_RACERS: Final = 200
_PRICES: Final = (("19.99", "19.99"), ("99999999999.9999", "99999999999.9999"), ("1e2", "100"), ("0.1", "0.1"))
"""Pairs of a price as sent and as returned."""
_LISTENERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "http/1.1": {"scheme": "http"},
    "https/1.1": {"scheme": "https"},
    "https/2": {"scheme": "https", "http2": True},
}
_SKUS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=255)


def product(sku: str, **changes: Any) -> dict[str, Any]:
    """Return a valid body with some fields changed."""
    return {"sku": sku, "name": "Tea", "price": 19.99, "stock": 3, **changes}


class CatalogTests:
    """Tests of a list and a create.

    Attributes:
        plugin: The plugin's name.
        prefix: The path of the list.
        shown: The JSON that is returned for `product`, a template of `str.format` with `{sku}` and `{id}`.
        databases: The databases to run on: `sqlite`, `postgresql`.
    """

    plugin: ClassVar[str]
    prefix: ClassVar[str]
    shown: ClassVar[str]
    databases: ClassVar[tuple[str, ...]] = ("sqlite",)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run everything on each database."""
        if "database" in metafunc.fixturenames:
            metafunc.parametrize("database", self.databases, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def host(cls, database: str) -> Iterator[RunningHost]:
        """A host with only this plugin and what it requires."""
        with cls.fresh(database) as running:
            yield running

    @pytest.fixture(scope="class")
    @classmethod
    def clients(cls, host: RunningHost) -> Iterator[dict[str, httpx.Client]]:
        """A client for each way to reach the site."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        opened = {name: host.client("main", limits=limits, **options) for name, options in _LISTENERS.items()}
        yield opened
        for client in opened.values():
            client.close()

    @pytest.fixture(params=_LISTENERS)
    def client(self, request: pytest.FixtureRequest, clients: dict[str, httpx.Client]) -> httpx.Client:
        """A client, over each listener and version of HTTP in turn."""
        return clients[request.param]

    @pytest.fixture(scope="class")
    @classmethod
    def new_sku(cls) -> Callable[[], str]:
        """A function that returns a new SKU at each call."""
        numbers = itertools.count(1)
        return lambda: f"SKU-{next(numbers)}"

    def test_an_empty_catalog_lists_nothing(self, database: str) -> None:
        """The list of no products is an empty array, never an error."""
        with self.fresh(database) as host, host.client() as client:
            answer = client.get(self.prefix)
            assert (answer.status_code, answer.text) == (200, "[]")
            assert answer.headers["Content-Type"] == "application/json"

    def test_products_are_listed_in_order_of_creation(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """A new product comes last in the list, in the same JSON that the create returned."""
        created = [client.post(self.prefix, json=product(sku)) for sku in (new_sku() + "-B", new_sku() + "-A")]
        assert [each.status_code for each in created] == [201, 201]
        assert client.get(self.prefix).text.endswith(f"{created[0].text},{created[1].text}]")

    def test_a_taken_sku_is_a_conflict_that_changes_nothing(
        self, client: httpx.Client, new_sku: Callable[[], str]
    ) -> None:
        """A second create is 409 with a text, and the first product stays."""
        sku = new_sku()
        first = client.post(self.prefix, json=product(sku))
        second = client.post(self.prefix, json=product(sku, name="Other"))
        assert (second.status_code, second.text) == (409, f"Product SKU already exists: {sku}")
        assert second.headers["Content-Type"] == _TEXT
        assert client.get(self.prefix).text.endswith(f"{first.text}]")

    def test_broken_rules_come_all_at_once_as_text(self, client: httpx.Client) -> None:
        """An invalid body is 400 with one line for each invalid field."""
        answer = client.post(self.prefix, json={"sku": " ", "price": "19.99", "stock": -1})
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, _TEXT)
        assert answer.text.splitlines() == [
            "sku: must not be blank",
            "name: must not be blank",
            "price: must be a number",
            "stock: must be greater than or equal to 0",
        ]

    def test_prices_are_exact(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """The digits of a price come back as they were sent, even those that no binary float can hold."""
        for raw, shown in _PRICES:
            created = self.create_priced(client, new_sku(), raw)
            assert f'"price":{shown},"stock":9223372036854775807' in created.text
            assert client.get(self.prefix).text.endswith(f"{created.text}]")

    def test_prices_lose_their_trailing_zeros(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """Catalogs in memory and in a store write a price alike, without zeros at its end."""
        for raw, shown in (("1.50", "1.5"), ("5.00", "5"), ("10.0", "10")):
            assert f'"price":{shown},' in self.create_priced(client, new_sku(), raw).text

    def test_of_racing_creates_one_wins(self, clients: dict[str, httpx.Client], new_sku: Callable[[], str]) -> None:
        """Of 200 creates of one SKU over all listeners, one is 201 and the others are 409."""
        assert self.race(list(clients.values()), new_sku()) == [201] + [409] * (_RACERS - 1)

    @classmethod
    @contextmanager
    def fresh(cls, database: str) -> Iterator[RunningHost]:
        """Run a host without products."""
        with (
            store_settings(database) as stores,
            running_host(plugins=[cls.plugin], settings=stores, strict=True) as running,
        ):
            yield running

    def create_priced(self, client: httpx.Client, sku: str, price: str) -> httpx.Response:
        """Create a product whose price has exactly these characters."""
        body = f'{{"sku": "{sku}", "name": "n", "price": {price}, "stock": 9223372036854775807}}'
        return client.post(self.prefix, content=body)

    def race(self, clients: list[httpx.Client], sku: str) -> list[int]:
        """Create one SKU from many threads at once; return the statuses, sorted."""
        start = threading.Barrier(_RACERS)

        def create(client: httpx.Client) -> int:
            start.wait()
            return client.post(self.prefix, json=product(sku)).status_code

        with ThreadPoolExecutor(_RACERS) as pool:
            return sorted(pool.map(create, islice(cycle(clients), _RACERS)))


class OneProductTests(CatalogTests):
    """Tests that add a get and a delete by SKU.

    Attributes:
        streams: Whether a list longer than one batch is sent without Content-Length.
    """

    streams: ClassVar[bool] = False

    def test_a_created_product_is_answered_located_and_kept(
        self, client: httpx.Client, new_sku: Callable[[], str]
    ) -> None:
        """A create is 201 with the product and its `Location`; a get there returns the same."""
        sku = new_sku()
        created = client.post(self.prefix, json=product(sku))
        assert created.status_code == 201
        assert created.text == self.shown.format(sku=sku, id=created.json().get("id"))
        assert created.headers["Location"] == f"{self.prefix}/{sku}"
        read = client.get(created.headers["Location"])
        assert (read.status_code, read.text) == (200, created.text)

    def test_a_price_is_read_as_it_was_created(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """A get returns the same digits as the create."""
        for raw, _ in _PRICES:
            created = self.create_priced(client, new_sku(), raw)
            assert client.get(created.headers["Location"]).text == created.text

    def test_what_one_listener_creates_every_listener_serves(
        self, clients: dict[str, httpx.Client], new_sku: Callable[[], str]
    ) -> None:
        """All listeners of the site share one state."""
        for creator in clients.values():
            path = creator.post(self.prefix, json=product(new_sku())).headers["Location"]
            assert [reader.get(path).status_code for reader in clients.values()] == [200, 200, 200]

    def test_an_unknown_sku_is_not_found(self, client: httpx.Client) -> None:
        """Get and delete are 404 with a text that names the SKU, even if it is an invalid one."""
        for sku in ("no/ne é", " ", "\u3000", "x" * 256):
            for method in ("GET", "DELETE"):
                answer = client.request(method, f"{self.prefix}/{sku_path(sku)}")
                assert (answer.status_code, answer.text) == (404, f"Product not found: {sku}")
                assert answer.headers["Content-Type"] == _TEXT

    def test_a_deleted_product_is_gone_and_can_be_created_again(
        self, client: httpx.Client, new_sku: Callable[[], str]
    ) -> None:
        """A delete is 204 without a body, once; the SKU is free afterwards, and comes last in the list."""
        sku, other = new_sku(), new_sku()
        client.post(self.prefix, json=product(sku))
        client.post(self.prefix, json=product(other))
        deleted = client.delete(f"{self.prefix}/{sku}")
        assert (deleted.status_code, deleted.content) == (204, b"")
        assert client.delete(f"{self.prefix}/{sku}").status_code == 404
        assert client.get(f"{self.prefix}/{sku}").status_code == 404
        assert client.post(self.prefix, json=product(sku)).status_code == 201
        assert [each["sku"] for each in client.get(self.prefix).json()][-2:] == [other, sku]

    def test_a_long_list_is_whole(self, database: str) -> None:
        """A list of about one batch, and of more than two, is one array in order of creation, on each listener."""
        skus: list[str] = []
        with self.fresh(database) as host:
            for length in (_BATCH - 1, _BATCH, _BATCH + 1, 2 * _BATCH + 500):
                with host.client() as client:
                    while len(skus) < length:
                        skus.append(f"SKU-{len(skus)}")
                        client.post(self.prefix, json=product(skus[-1]))
                for options in _LISTENERS.values():
                    with host.client(**options) as client:
                        answer = client.get(self.prefix)
                        assert [each["sku"] for each in answer.json()] == skus
                        if self.streams:
                            assert ("Content-Length" in answer.headers) == (length <= _BATCH)

    @settings(
        deadline=None,
        max_examples=60 if os.environ.get("PLUGHOST_TEST_ALL") else 20,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(sku=_SKUS.filter(lambda sku: not sku.isspace()) | st.sampled_from(AWKWARD_SKUS))
    def test_every_sku_that_can_be_created_can_be_read_and_deleted(self, client: httpx.Client, sku: str) -> None:
        """Percent-encoded in the path, any SKU names its product and no other."""
        self.make_the_round_trip(client, sku)

    def test_every_awkward_sku_makes_the_round_trip(self, client: httpx.Client) -> None:
        """Slashes, dots, question marks, percent signs and control characters are data."""
        for sku in AWKWARD_SKUS:
            self.make_the_round_trip(client, sku)

    def make_the_round_trip(self, client: httpx.Client, sku: str) -> None:
        """Create, read and delete a product."""
        created = client.post(self.prefix, json=product(sku))
        assert (created.status_code, created.json()["sku"]) == (201, sku)
        assert created.headers["Location"] == f"{self.prefix}/{sku_path(sku)}"
        read = client.get(created.headers["Location"])
        assert (read.status_code, read.text) == (200, created.text)
        deleted = client.delete(created.headers["Location"])
        assert (deleted.status_code, deleted.content) == (204, b"")


class StoredProductTests(OneProductTests):
    """Tests that apply only to catalogs with a database."""

    databases = ("sqlite", "postgresql")
    streams = True

    def test_products_survive_a_restart(self, database: str, tmp_path: Path) -> None:
        """A list is the same after the host starts again."""
        listed = []
        with store_settings(database) as stores:
            for _ in range(2):
                with running_host([self.plugin], settings=stores, data_dir=tmp_path) as host, host.client() as client:
                    client.post(self.prefix, json=product("restart"))
                    listed.append(client.get(self.prefix).text)
        assert listed[0] == listed[1]
        assert "restart" in listed[0]
