"""A host that serves catalog-v3 alone, on each engine, and clients of its listeners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import httpx
import pytest

from plughost.testing import RunningHost, running_host, store_settings
from plughost_catalog_store import Catalog, table

LISTENERS: dict[str, dict[str, Any]] = {
    "http/1.1": {"scheme": "http"},
    "https/1.1": {"scheme": "https"},
    "https/2": {"scheme": "https", "http2": True},
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Settings that keep the products in one engine, then in the other."""
    with store_settings(request.param) as settings:
        yield settings


@pytest.fixture(scope="module")
def host(stores: dict[str, Any]) -> Iterator[RunningHost]:
    """A host with this plugin, what it requires, and no other."""
    with running_host(plugins=["catalog-v3"], settings=stores, strict=True) as running:
        yield running


@pytest.fixture(scope="module")
def clients(host: RunningHost) -> Iterator[dict[str, httpx.Client]]:
    """A client for each way to reach the site."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    opened = {name: host.client("main", limits=limits, **options) for name, options in LISTENERS.items()}
    yield opened
    for client in opened.values():
        client.close()


@pytest.fixture(params=LISTENERS)
def client(request: pytest.FixtureRequest, clients: dict[str, httpx.Client]) -> httpx.Client:
    """A client, over each listener and version of HTTP in turn."""
    return clients[cast("str", request.param)]


@pytest.fixture(scope="module")
def new_sku() -> Callable[[], str]:
    """Makes SKUs that nobody has."""
    numbers = itertools.count(1)
    return lambda: f"SKU-{next(numbers)}"


@pytest.fixture
def empty(host: RunningHost) -> Catalog:
    """The catalog behind the service, with nothing in it."""
    host.store("catalog").run(table.delete)
    return Catalog(host.store("catalog"))
