"""Fixtures for rules that hold everywhere: a host on each engine, and a client on each lane to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import structlog
from tests.http.reached import Logged, Reached
from tests.http.table import Table
from tests.lanes import LANES, Lane

from plughost.testing import RunningHost, plugin_distribution, running_host


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, tuple[RunningHost, Logged]]]:
    """A host on each engine, and its log events."""
    with ExitStack() as stack:
        running = {}
        for engine in ("waitress", "granian"):
            logged: Logged = []

            def keep(logger: object, method: str, event: Any, logged: Logged = logged) -> Any:
                logged.append({**event, "level": method})
                raise structlog.DropEvent

            logger: Any = structlog.wrap_logger(structlog.ReturnLogger(), processors=[keep])
            settings = {"sites": {"main": {"http_engine": engine}}}
            installed = [plugin_distribution("table", Table())]
            host = stack.enter_context(running_host(distributions=installed, settings=settings, logger=logger))
            running[engine] = (host, logged)
        yield running


@pytest.fixture(params=LANES, ids=str)
def lane(request: pytest.FixtureRequest) -> Lane:
    """Each way to reach a host."""
    chosen: Lane = request.param
    return chosen


@pytest.fixture(params=LANES, ids=str)
def reached(request: pytest.FixtureRequest, hosts: dict[str, tuple[RunningHost, Logged]]) -> Iterator[Reached]:
    """A host and a client on one lane to it."""
    lane: Lane = request.param
    host, logged = hosts[lane.engine]
    logged.clear()
    with host.client(scheme=lane.scheme, http2=lane.http2) as client:
        yield Reached(host, lane, client, logged)
