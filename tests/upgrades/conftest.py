"""Packages of a host that runs in its own process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plughost.testing import store_settings


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder on a host's path."""
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Any]]:
    """Settings of a host, for each engine."""
    with store_settings(request.param) as found:
        yield found
