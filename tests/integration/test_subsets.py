"""Every subset of the services serves exactly its routes, whichever others are skipped (`--without`).

The 8 subsets of the first three services open real listeners and are asked over each. The 256 subsets of all eight are
built like any generation, stores and all, and asked through the sites' WSGI applications: 256 times four listeners,
with a thread pool each, would take minutes. Without `PLUGHOST_TEST_ALL=1` it is every eighth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from falcon.testing import TestClient
from tests.integration.kit import ALL, LANES

from plughost._apps.site import Site
from plughost._logging import silent_logger
from plughost._plugins.environment import Environment
from plughost._runtime.building import migrate
from plughost._runtime.generation import refuse
from plughost._runtime.host import Host
from plughost._settings.sources import read_settings
from plughost.testing import running_host

if TYPE_CHECKING:
    from plughost._runtime.generation import Generation

Routes = frozenset[tuple[str, str]]

# Where each service is asked, and the templates that it mounts (SPEC Endpoints, CONTRACT 3 to 7).
PROBES: Final = {
    "library-auth": ("library", "/mylibrary/.well-known/jwks.json"),
    "catalog-v1": ("main", "/api/v1/products"),
    "catalog-v2": ("main", "/api/v2/products"),
    "catalog-v3": ("main", "/api/v3/products"),
    "catalog-v4": ("main", "/api/v4/products"),
    "catalog-crud": ("main", "/products"),
    "messages": ("main", "/messages"),
    "profile-template": ("main", "/users/profile"),
}
TEMPLATES: Final = {
    "library-auth": {
        "/mylibrary/setup/login",
        "/mylibrary/.well-known/openid-configuration",
        "/mylibrary/setup/secured",
        "/mylibrary/setup/secured/admin",
        "/mylibrary/libraryAuthentification",
        "/mylibrary/.well-known/jwks.json",
    },
    "catalog-v1": {"/api/v1/products"},
    "catalog-v2": {"/api/v2/products", "/api/v2/products/{}"},
    "catalog-v3": {"/api/v3/products", "/api/v3/products/{}"},
    "catalog-v4": {"/api/v4/products", "/api/v4/products/{}"},
    "catalog-crud": {"/products", "/products/count", "/products/{}"},
    "messages": {"/messages", "/messages/{}"},
    "profile-template": {"/users/profile"},
}
FIRST_THREE: Final = ("library-auth", "catalog-v1", "catalog-v2")


def subsets(services: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield every subset of the services."""
    for size in range(len(services) + 1):
        yield from combinations(services, size)


def expected(services: tuple[str, ...]) -> Routes:
    """Return the site and template of each route of some services."""
    return frozenset((PROBES[each][0], template) for each in services for template in TEMPLATES[each])


def without_names(template: str) -> str:
    """Return a template without its fields' names."""
    return re.sub(r"\{\w+\}", "{}", template)


def mounted(generation: Generation) -> Routes:
    """Return the site and template of each route of a generation."""
    return frozenset(
        (name, without_names(template))
        for name, site in generation.sites.items()
        for group in site.groups
        for template in group.routes
    )


def others() -> set[str]:
    """Return the installed plugins that are not among the services."""
    names = {
        each.name for each in Host(read_settings(None, environment={}), logger=silent_logger()).environment().plugins
    }
    return names - set(PROBES) - {"catalog-store"}


@pytest.mark.parametrize("services", list(subsets(FIRST_THREE)), ids=lambda services: "+".join(services) or "none")
def test_a_subset_serves_its_routes_on_its_ports(services: tuple[str, ...]) -> None:
    """A served route answers on every listener of its site; a skipped one is 404, or its port is closed."""
    skipped = {*others(), "catalog-store", *PROBES} - set(services)
    with running_host(without=skipped, strict=True) as host:
        assert host.host.generation is not None
        assert mounted(host.host.generation) == expected(services)
        sites = {PROBES[each][0] for each in services}
        assert host.host.ports.keys() == {(site, scheme) for site in sites for scheme in ("http", "https")}
        for site in sites:
            for lane in LANES:
                with host.client(site, lane.scheme, http1=not lane.http2, http2=lane.http2) as client:
                    answered = {path for _, path in PROBES.values() if client.get(path).status_code == 200}
                    assert answered == {PROBES[each][1] for each in services if PROBES[each][0] == site}


def test_every_subset_of_all_services_serves_exactly_its_routes(tmp_path: Path) -> None:
    """In all 256 subsets, or a part of them, a service answers on its own site only, and a skipped one is 404."""
    settings = tmp_path / "plughost.toml"
    settings.write_text("[log]\naccess = false\n")
    further, wrong = others(), []
    environment = Environment()  # the tests' own packages are not searched 256 times
    known = [environment.installed[key] for key in environment.closure(environment.owners.values())]
    for services in list(subsets(tuple(PROBES))) if ALL else list(subsets(tuple(PROBES)))[3::8]:
        without = further | (PROBES.keys() - set(services))
        host = Host(
            read_settings(settings, environment={}),
            dev=True,
            without=without,
            strict=True,
            logger=silent_logger(),
            distributions=lambda: known,
        )
        generation = migrate(host, host.dry_run())
        refuse(generation, host.generation, (), strict=True)
        generation.stores.open()
        try:
            if mounted(generation) != expected(services) or answering(generation) != set(services):
                wrong.append((services, mounted(generation), answering(generation)))
        finally:
            generation.close()
    assert wrong == []


def answering(generation: Generation) -> set[str]:
    """Return the services that answer on their site, and check that they don't on the other."""
    answered = set()
    for name, site in generation.sites.items():
        client = TestClient(Site(name, site.app))
        for service, (home, path) in PROBES.items():
            status = client.simulate_get(path).status_code
            assert status in ({200, 404} if home == name else {404}), (service, name, status)
            if status == 200:
                answered.add(service)
    return answered
