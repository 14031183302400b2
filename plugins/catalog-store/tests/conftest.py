"""The catalog of a host, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plughost.testing import RunningHost, running_host, store_settings
from plughost_catalog_store import Catalog, table


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host with the store."""
    with store_settings(request.param) as settings, running_host(["catalog-store"], settings=settings) as host:
        yield host


@pytest.fixture
def catalog(host: RunningHost) -> Catalog:
    """An empty catalog."""
    store = host.store("catalog")
    store.run(table.delete)
    return Catalog(store)
