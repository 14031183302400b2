"""Catalog v1 over real HTTP, on each listener (SPEC Product catalog v1, CONTRACT 2 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plughost.testing import running_host
from plughost_catalog_core.testing import CatalogTests, product

if TYPE_CHECKING:
    import httpx

TEXT = "text/plain; charset=utf-8"


class TestProducts(CatalogTests):
    """The tests for every catalog, and the limits of v1."""

    plugin, prefix = "catalog-v1", "/api/v1/products"
    shown = '{{"sku":"{sku}","name":"Tea","price":19.99,"stock":3,"inStock":true}}'

    def test_a_create_is_201_without_location(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """The answer contains the product; v1 has no get by SKU."""
        sku = new_sku()
        created = client.post(self.prefix, json=product(sku))
        assert (created.status_code, created.text) == (201, self.shown.format(sku=sku))
        assert "Location" not in created.headers

    def test_each_invalid_type_has_its_message(self, client: httpx.Client) -> None:
        """A number for a text, an empty text, a negative price and a missing number have their own messages."""
        answer = client.post(self.prefix, json={"sku": 5, "name": "", "price": -1})
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, TEXT)
        assert answer.text.splitlines() == [
            "sku: must be a string",
            "name: must not be blank",
            "price: must be greater than or equal to 0",
            "stock: must not be null",
        ]

    def test_v1_has_no_other_resources(self, client: httpx.Client, new_sku: Callable[[], str]) -> None:
        """There is no resource for one product, and the list can't be deleted."""
        sku = new_sku()
        client.post(self.prefix, json=product(sku))
        assert client.get(f"{self.prefix}/{sku}").status_code == 404
        assert client.delete(f"{self.prefix}/{sku}").status_code == 404
        refused = client.delete(self.prefix)
        assert (refused.status_code, refused.headers["Content-Type"]) == (405, TEXT)
        assert {"GET", "POST"} <= set(refused.headers["Allow"].split(", "))

    def test_the_minor_version_is_1_0(self, client: httpx.Client) -> None:
        """Each answer names the version that served it."""
        assert client.get(self.prefix, headers={"API-Version": "1"}).headers["API-Version"] == "1.0"
        assert client.get(self.prefix, headers={"API-Version": "2.0"}).status_code == 400

    def test_a_full_catalog_is_507(self) -> None:
        """The answer has a text; a taken SKU is still 409."""
        limits = {"plugins": {self.plugin: {"max_products": 1}}}
        with running_host([self.plugin], settings=limits) as host, host.client() as client:
            assert [client.post(self.prefix, json=product(sku)).status_code for sku in "ABA"] == [201, 507, 409]
            full = client.post(self.prefix, json=product("B"))
            assert (full.text, full.headers["Content-Type"]) == (
                "The catalog is full: it keeps at most 1 products",
                TEXT,
            )
