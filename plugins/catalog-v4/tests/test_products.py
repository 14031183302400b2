"""Catalog v4 over real HTTP, on each listener and database (SPEC Product catalog v4, CONTRACT 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plughost_catalog_core.testing import StoredProductTests, product

if TYPE_CHECKING:
    import httpx


class TestProducts(StoredProductTests):
    """The tests for every catalog, and that ids stay internal."""

    plugin, prefix = "catalog-v4", "/api/v4/products"
    shown = '{{"sku":"{sku}","name":"Tea","price":19.99,"stock":3}}'

    def test_ids_are_not_public(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """Neither the list nor a product shows the store's id, and a client's own id is ignored."""
        created = client.post(self.prefix, json=product(new_sku(), id=2**60))
        shown = ["sku", "name", "price", "stock"]
        assert list(created.json()) == list(client.get(created.headers["Location"]).json()) == shown
        assert all(list(each) == shown for each in client.get(self.prefix).json())
