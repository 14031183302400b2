"""What strangers see of a host: whether it is up, and nothing else (docs/operators/security.md)."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from plughost.testing import RunningHost, running_host

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBES: Final = ("/q/health", "/q/health/live", "/q/health/ready", "/q/health/started")
PLUGINS: Final = ["health", "metrics", "openapi", "messages"]
FORWARDED: Final = ({"X-Forwarded-For": "203.0.113.5"}, {"Forwarded": "for=127.0.0.1"}, {"Via": "1.1 proxy"})


@pytest.fixture(params=["waitress", "granian"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a host on all addresses, on either engine."""
    return {"address": "0.0.0.0", "sites": {"main": {"http_engine": request.param}}}


@pytest.fixture
def host(settings: dict[str, Any]) -> Iterator[RunningHost]:
    """A host that others reach."""
    with running_host(PLUGINS, settings=settings, strict=True) as running:
        yield running


def own_address() -> str:
    """Return an address of this machine that isn't loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_strangers_read_up_and_nothing_else(host: RunningHost) -> None:
    """From another address: UP, no checks, no metrics, nothing else under /q. From this machine: all of it."""
    with host.client() as here:
        port = here.base_url.port
        with httpx.Client(base_url=f"http://{own_address()}:{port}", trust_env=False) as elsewhere:
            for probe in PROBES:
                assert elsewhere.get(probe).json() == {"status": "UP", "checks": []}
                assert here.get(probe).json()["checks"]
            assert (elsewhere.get("/q/metrics").status_code, here.get("/q/metrics").status_code) == (403, 200)
            for path in ("/q/openapi", "/q/swagger-ui", "/q/dev", "/q"):
                assert elsewhere.get(path).status_code == 404


@pytest.mark.parametrize("headers", FORWARDED)
def test_who_comes_through_a_proxy_is_a_stranger(host: RunningHost, headers: dict[str, str]) -> None:
    """A proxy on this machine makes nobody local, whether or not it is trusted."""
    with host.client() as client:
        assert client.get("/q/health", headers=headers).json() == {"status": "UP", "checks": []}
        assert client.get("/q/metrics", headers=headers).status_code == 403


def test_a_setting_each_shows_all_to_everybody(settings: dict[str, Any]) -> None:
    """With `public`, strangers see what health checks find, and metrics."""
    plugins = {"health": {"public": True}, "metrics": {"public": True}}
    with running_host(PLUGINS, settings={**settings, "plugins": plugins}) as host, host.client() as client:
        assert client.get("/q/health", headers=FORWARDED[0]).json()["checks"]
        assert client.get("/q/metrics", headers=FORWARDED[0]).status_code == 200


def test_everybody_on_the_site_for_operators_sees_all(settings: dict[str, Any]) -> None:
    """Who is let in on `admin` is no stranger, wherever from."""
    moved = {name: {"site": "admin"} for name in ("health", "metrics")}
    with running_host(PLUGINS, settings={**settings, "plugins": moved}) as host, host.client("admin") as client:
        assert client.get("/q/health", headers=FORWARDED[0]).json()["checks"]
        assert client.get("/q/metrics", headers=FORWARDED[0]).status_code == 200
