"""A host with the plugin, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from plughost.testing import RunningHost, running_host, store_settings

if TYPE_CHECKING:
    import httpx


@pytest.fixture(params=["sqlite", "postgresql"])
def host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host for one test. Its clock starts on New Year's Day, and it keeps bookmarks for a week."""
    with store_settings(request.param) as stores:
        settings = {**stores, "plugins": {"bookmarks": {"keep_days": 7}}}
        now = datetime(2027, 1, 1, tzinfo=UTC)
        with running_host(["bookmarks"], settings=settings, strict=True, now=now) as host:
            yield host


@pytest.fixture
def client(host: RunningHost) -> Iterator[httpx.Client]:
    """An HTTP client of a host without bookmarks."""
    with host.client() as client:
        yield client
