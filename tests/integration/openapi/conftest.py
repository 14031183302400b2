"""A host with every installed plugin, for clients that know only its description."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plughost.testing import RunningHost, running_host

SITES = ("main", "library")
LICENSE = {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
# Clients that try everything send many requests, some with wrong passwords.
SETTINGS = {
    "plugins": {
        "library-auth": dict.fromkeys(
            ("login_limit_account", "login_limit_address", "login_limit_anywhere"), "100000/minute"
        ),
        "profile-template": {"rate_limit": "100000/minute"},
        # Linters require a contact and a licence.
        "openapi": {"about": {"contact": {"name": "ACME", "url": "https://acme.example"}, "license": LICENSE}},
    }
}


@pytest.fixture(scope="session")
def host() -> Iterator[RunningHost]:
    """A host with every plugin, in development mode."""
    with running_host(settings=SETTINGS, strict=True) as running:
        yield running


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest) -> str:
    """Each site in turn."""
    name: str = request.param
    return name
