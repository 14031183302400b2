"""A host whose standard error nobody reads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Line
    from tests.cli.test_serve import Serve


@pytest.fixture
def pipe() -> Iterator[int]:
    """Yield the end to write of a pipe that nobody reads."""
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


def fill(pipe: int) -> None:
    """Write to a pipe until it has no room."""
    own = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)  # the host's own writes still wait
    with suppress(BlockingIOError):
        while True:
            os.write(own, b"." * 4096)
    os.close(own)


CHATTY = """
import pathlib
from plughost import Operation, Route, RouteGroup, hookimpl


class Chatty:
    def __init__(self, context):
        self.context = context

    def on_get(self, req, resp):
        pathlib.Path("logging").touch()
        self.context.logger.warning("a line")
        resp.media = "answered"


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/chatty", routes=(Route("", Chatty(context), {"GET": Operation(summary="Log")}),))]
"""


def test_a_stop_does_not_wait_for_a_reader(line: Line, serving: Serve, pipe: int) -> None:
    """A stop drops lines that nobody reads, answers the request that waits for a reader, and ends well."""
    line.install("chatty", CHATTY)
    host = serving(stderr=pipe)
    fill(pipe)
    with ThreadPoolExecutor() as pool:
        response = pool.submit(httpx.get, f"{host.url()}/chatty", trust_env=False, timeout=60)
        wait_until((line.folder / "logging").exists)
        host.process.send_signal(signal.SIGTERM)
        assert response.result().json() == "answered"
    assert host.process.wait(60) == 0


def test_a_start_that_waits_for_a_reader_is_stopped(line: Line, serving: Serve, pipe: int) -> None:
    """SIGTERM ends a host whose first line nobody reads."""
    fill(pipe)
    host = serving(stderr=pipe)
    host.process.send_signal(signal.SIGTERM)
    assert host.process.wait(60) == 0
