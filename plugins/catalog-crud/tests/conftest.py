"""A host with the plugin, on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plughost.testing import RunningHost, running_host, store_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

Product = dict[str, Any]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host for all tests of a module."""
    with store_settings(request.param) as settings, running_host(["catalog-crud"], settings=settings) as host:
        yield host


@pytest.fixture
def client(host: RunningHost) -> Iterator[httpx.Client]:
    """An HTTP client; there are no products yet."""
    with host.client() as client:
        for product in client.get("/products", params={"size": 100}).json():
            client.delete(f"/products/{product['id']}")
        yield client


@pytest.fixture
def create(client: httpx.Client) -> Callable[..., Product]:
    """Create a product, with defaults for the fields that are not given."""

    def create(sku: str, **fields: Any) -> Product:
        answer = client.post("/products", json={"sku": sku, "name": f"Name of {sku}", "price": 1, "stock": 1, **fields})
        assert answer.status_code == 201, answer.text
        product: Product = answer.json()
        return product

    return create
