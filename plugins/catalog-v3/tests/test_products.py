"""Catalog v3 over real HTTP, on each listener and database (SPEC Product catalog v3, CONTRACT 4)."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from plughost.testing import running_host, store_settings
from plughost_catalog_core.testing import StoredProductTests, product


class TestProducts(StoredProductTests):
    """The tests for every catalog, and for the store's ids."""

    plugin, prefix = "catalog-v3", "/api/v3/products"
    shown = '{{"id":{id},"sku":"{sku}","name":"Tea","price":19.99,"stock":3}}'

    def test_the_id_is_the_stores(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """Ids are generated, whatever a client sends, and never reused."""
        first = client.post(self.prefix, json=product(new_sku(), id=2**60))
        client.delete(first.headers["Location"])
        second = client.post(self.prefix, json=product(new_sku()))
        assert first.json()["id"] < second.json()["id"] < 2**60

    def test_only_one_of_simultaneous_creates_over_two_hosts_succeeds(self) -> None:
        """Of 200 creates of one SKU over two hosts on one PostgreSQL, one is 201 and the others are 409."""
        with (
            store_settings("postgresql") as stores,
            running_host([self.plugin], settings=stores) as one,
            running_host([self.plugin], settings=stores) as two,
            one.client(limits=httpx.Limits(max_connections=None)) as first,
            two.client(limits=httpx.Limits(max_connections=None)) as second,
        ):
            assert self.race([first, second], "race") == [201] + [409] * 199
            assert first.get(self.prefix).json() == second.get(self.prefix).json()
