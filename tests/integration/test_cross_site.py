"""Web pages of other sites can't write to any plugin (CONTRACT 2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from plughost.testing import RunningHost, running_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAMES: Final = ["localhost", "127.0.0.1"]
# Requests of a foreign page: from a present browser, from an older one, and through a rebound name of this host.
CROSS_SITE: Final[Mapping[str, tuple[int, dict[str, str]]]] = {
    "cross-site": (403, {"Sec-Fetch-Site": "cross-site"}),
    "same-site": (403, {"Sec-Fetch-Site": "same-site", "Origin": "http://other.localhost"}),
    "another origin": (403, {"Origin": "https://evil.example"}),
    "no origin": (403, {"Origin": "null"}),
    "rebound": (400, {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}),
}


@pytest.fixture(params=[NAMES, []], ids=["named", "unnamed"], scope="module")
def names(request: pytest.FixtureRequest) -> Sequence[str]:
    """The value of `allowed_hosts`."""
    allowed: Sequence[str] = request.param
    return allowed


@pytest.fixture(params=["waitress", "granian"], scope="module")
def host(request: pytest.FixtureRequest, names: Sequence[str]) -> Iterator[RunningHost]:
    """A host with every plugin, on either engine."""
    site = {"http_engine": request.param, "allowed_hosts": names}
    settings: dict[str, Any] = {"sites": {"main": site, "library": site}, "trusted": ["dev-console"]}
    with running_host(strict=True, settings=settings) as running:
        yield running


def _writes(host: RunningHost) -> dict[str, list[tuple[str, str]]]:
    """Return method and path of each write of every plugin, by site: those of the API description, and others."""
    return {
        site: [
            (method, re.sub(r"\{[^}]*\}", "1", group.prefix + route.path))
            for _, group in mounted.groups
            for route in group.routes
            for method in route.operations
            if method not in ("GET", "HEAD", "OPTIONS")
        ]
        for site, mounted in host.host.view.sites.items()
    }


@pytest.mark.parametrize("page", CROSS_SITE)
def test_every_write_of_every_plugin_refuses_other_sites(host: RunningHost, names: Sequence[str], page: str) -> None:
    """Each declared unsafe method is refused to a page of another site, and to a rebound name."""
    status, headers = CROSS_SITE[page]
    if not names:
        status = 403  # a rebound name is answered in this case, but can't write
    refused = 0
    for site, writes in _writes(host).items():
        with host.client(site) as client:
            for method, path in writes:
                answer = client.request(method, path, headers=headers, content=b"{}")
                assert answer.status_code == status, (method, path, answer.text)
                refused += 1
    assert refused >= 15


def test_a_refused_write_names_its_minor_version(host: RunningHost) -> None:
    """The refusal has the `API-Version` that every other response of the resource has (CONTRACT 2)."""
    with host.client() as client:
        answer = client.post("/messages", headers={"Origin": "https://evil.example"}, json={"content": "x"})
    assert (answer.status_code, answer.headers.get("API-Version")) == (403, "1.0")


def test_all_writes_of_the_description_were_tried(host: RunningHost) -> None:
    """Every write in the API description is among the tried ones."""
    tried = {(method, path) for writes in _writes(host).values() for method, path in writes}
    described = set()
    with host.client() as client:
        for site in ("main", "library"):
            document = client.get(f"/q/openapi?format=json&site={site}").json()
            described |= {
                (method.upper(), re.sub(r"\{[^}]*\}", "1", path))
                for path, item in document["paths"].items()
                for method in item
                if method in ("post", "put", "patch", "delete")
            }
    assert described
    assert described <= tried
