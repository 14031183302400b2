"""A host with the plugin, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from plughost.testing import RunningHost, running_host, store_settings
from plughost_messages.store import Messages

if TYPE_CHECKING:
    import httpx


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host for all tests of a module."""
    with store_settings(request.param) as settings, running_host(["messages"], settings=settings, strict=True) as host:
        yield host


@pytest.fixture
def client(host: RunningHost) -> Iterator[httpx.Client]:
    """An HTTP client of a service without messages."""
    with host.client() as client:
        for message in client.get("/messages").json():
            client.delete(f"/messages/{message['id']}")
        yield client


@pytest.fixture
def messages(host: RunningHost, client: httpx.Client) -> Messages:
    """The service's messages; there are none yet."""
    return Messages(host.store("messages"))
