"""The persistent catalogs share their products, whichever of them serve (CONTRACT 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest

from plughost.testing import running_host, store_settings

Serving = Callable[..., AbstractContextManager[httpx.Client]]
TEAPOT = {"sku": "POT/1.2L", "name": "Teapot", "price": 19.99, "stock": 3}


@pytest.fixture(params=["sqlite", "postgresql"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    """Return a function that serves given plugins, each time on the same stores."""
    with store_settings(request.param) as stores:

        @contextmanager
        def serve(*plugins: str) -> Iterator[httpx.Client]:
            with running_host(plugins, settings=stores, data_dir=tmp_path) as host, host.client() as client:
                yield client

        yield serve


def test_v3_and_v4_show_the_same_products_together(serving: Serving) -> None:
    """A product of one is shown by the other, refused as a duplicate, and deleted."""
    with serving("catalog-v3", "catalog-v4") as client:
        assert client.post("/api/v3/products", json=TEAPOT).status_code == 201
        assert client.get("/api/v4/products").json() == [TEAPOT]
        assert client.post("/api/v4/products", json=TEAPOT).status_code == 409
        assert client.delete("/api/v4/products/POT%2F1.2L").status_code == 204
        assert client.get("/api/v3/products").json() == []


def test_v3_and_v4_show_the_same_products_one_after_the_other(serving: Serving) -> None:
    """Products stored by one are shown by the other when it serves alone."""
    with serving("catalog-v3") as client:
        created = client.post("/api/v3/products", json=TEAPOT).json()
    with serving("catalog-v4") as client:
        assert client.get("/api/v3/products").status_code == 404
        assert client.get("/api/v4/products").json() == [TEAPOT]
    with serving("catalog-v3") as client:
        assert client.get("/api/v3/products").json() == [created]
