"""No plugin blocks another: while its share of threads is full, it answers 503 and the others serve."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.host.packages import plugin_entry, write_package
from tests.integration.kit import HostProcess, host_process
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from plughost._settings.models import EngineName

SLEEPERS = '''
"""A plugin whose requests wait for a file."""

import pathlib
import time

from plughost import Operation, Response, Route, RouteGroup, hookimpl


class Sleep:
    def on_get(self, req, resp):
        (pathlib.Path("{folder}") / f"begun-{{req.get_param('n')}}").touch()
        while not (pathlib.Path("{folder}") / "go-on").exists():
            time.sleep(0.05)
        resp.media = []


@hookimpl
def register_routes(context):
    operation = Operation(summary="Sleep", responses={{200: Response(description="Slept")}})
    return [RouteGroup(prefix="/sleep", routes=(Route("", Sleep(), {{"GET": operation}}),))]
'''


@pytest.fixture(params=["waitress", "granian"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostProcess]:
    """A host with every plugin and one that sleeps; its HTTP listener is of each engine."""
    engine: EngineName = request.param
    packages = tmp_path / "packages"
    code = {"sleepers.py": SLEEPERS.format(folder=tmp_path)}
    write_package(packages, "sleepers", code, entry_points=plugin_entry("sleepers", "sleepers"))
    settings = {"sites": {"main": {"http_engine": engine}}, "requests": {"plugin_queue": 1, "queue_timeout": 60}}
    with host_process(tmp_path, settings, environment={"PYTHONPATH": str(packages)}) as running:
        yield running


def test_a_plugin_that_sleeps_blocks_nobody(host: HostProcess, tmp_path: Path) -> None:
    """Two of its requests run, one waits, the rest are 503 with Retry-After; liveness and others answer meanwhile."""
    with httpx.Client(base_url=host.url(), timeout=60, trust_env=False) as client, ThreadPoolExecutor(8) as pool:
        try:
            asked = [pool.submit(httpx.get, f"{host.url()}/sleep?n={n}", timeout=60) for n in range(2)]
            wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
            asked.append(pool.submit(httpx.get, f"{host.url()}/sleep?n=2", timeout=60))
            wait_until(lambda: 'plughost_requests_queued{plugin="sleepers"} 1.0' in client.get("/q/metrics").text)
            refused = client.get("/sleep?n=3")
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert (refused.headers["Content-Type"], refused.json()["status"]) == ("application/problem+json", 503)
            assert refused.headers["X-Request-ID"]
            for path in ("/q/health/live", "/api/v2/products", "/api/v3/products", "/messages"):
                assert client.get(path).status_code == 200
            assert 'plughost_threads_held{plugin="sleepers"} 2.0' in client.get("/q/metrics").text
            wait_until(
                lambda: 'plughost_requests_refused_total{plugin="sleepers"} 1.0' in client.get("/q/metrics").text
            )
            assert len(list(tmp_path.glob("begun-*"))) == 2
        finally:
            (tmp_path / "go-on").touch()
        assert [each.result().status_code for each in asked] == [200, 200, 200]
