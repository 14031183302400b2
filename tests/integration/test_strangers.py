"""Strangers learn from a host only whether it is up (docs/operators/security.md)."""

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
    """A host that other machines can reach."""
    with running_host(PLUGINS, settings=settings, strict=True) as running:
        yield running


def own_address() -> str:
    """Return an address of this machine that isn't loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends no packets
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_strangers_read_only_the_status(host: RunningHost) -> None:
    """From another address, they see UP, but no checks, metrics or anything else under /q; this machine sees all."""
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
def test_a_client_behind_a_proxy_is_a_stranger(host: RunningHost, headers: dict[str, str]) -> None:
    """A proxy on this machine makes no client local, whether or not it is trusted."""
    with host.client() as client:
        assert client.get("/q/health", headers=headers).json() == {"status": "UP", "checks": []}
        assert client.get("/q/metrics", headers=headers).status_code == 403


def test_settings_make_health_and_metrics_public(settings: dict[str, Any]) -> None:
    """With `public`, strangers see the results of health checks, and metrics."""
    plugins = {"health": {"public": True}, "metrics": {"public": True}}
    with running_host(PLUGINS, settings={**settings, "plugins": plugins}) as host, host.client() as client:
        assert client.get("/q/health", headers=FORWARDED[0]).json()["checks"]
        assert client.get("/q/metrics", headers=FORWARDED[0]).status_code == 200


def test_everybody_on_the_operators_site_sees_all(settings: dict[str, Any]) -> None:
    """A client that `admin` lets in is no stranger, from any address."""
    moved = {name: {"site": "admin"} for name in ("health", "metrics")}
    with running_host(PLUGINS, settings={**settings, "plugins": moved}) as host, host.client("admin") as client:
        assert client.get("/q/health", headers=FORWARDED[0]).json()["checks"]
        assert client.get("/q/metrics", headers=FORWARDED[0]).status_code == 200
