"""Catalog v2 over real HTTP, on each listener (SPEC Product catalog v2, CONTRACT 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plughost.testing import running_host
from plughost_catalog_core.testing import OneProductTests, product

if TYPE_CHECKING:
    import httpx


class TestProducts(OneProductTests):
    """The tests for every catalog, and the effects of storage in memory."""

    plugin, prefix = "catalog-v2", "/api/v2/products"
    shown = '{{"sku":"{sku}","name":"Tea","price":19.99,"stock":3,"inStock":true}}'

    def test_in_stock_is_derived(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """A product without stock isn't in stock, whatever the client sends."""
        assert client.post(self.prefix, json=product(new_sku(), stock=0, inStock=True)).json()["inStock"] is False

    def test_a_full_catalog_is_507(self) -> None:
        """The answer has a text; a delete makes room."""
        limits = {"plugins": {self.plugin: {"max_products": 2}}}
        with running_host([self.plugin], settings=limits) as host, host.client() as client:
            assert [client.post(self.prefix, json=product(sku)).status_code for sku in "ABC"] == [201, 201, 507]
            full = client.post(self.prefix, json=product("C"))
            assert full.text == "The catalog is full: it keeps at most 2 products"
            assert full.headers["Content-Type"] == "text/plain; charset=utf-8"
            client.delete(f"{self.prefix}/A")
            assert client.post(self.prefix, json=product("C")).status_code == 201
