"""A host that serves catalog-v2 alone, and clients of its listeners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import httpx
import pytest

from plughost.testing import RunningHost, running_host

LISTENERS: dict[str, dict[str, Any]] = {
    "http/1.1": {"scheme": "http"},
    "https/1.1": {"scheme": "https"},
    "https/2": {"scheme": "https", "http2": True},
}


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with this plugin and no other."""
    with running_host(plugins=["catalog-v2"]) as running:
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
