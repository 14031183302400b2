"""The site `admin`: one setting each moves the operators' pages there and hides them from strangers elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from plughost.testing import running_host

PLUGINS = ["library-auth", "health", "metrics", "openapi", "messages"]
PATHS = ("/q/health", "/q/health/live", "/q/metrics", "/q/openapi")


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_operators_pages_are_only_on_their_site(engine: str) -> None:
    """Nothing under /q answers on other sites; on `admin` everything does, but only to tokens with the role."""
    moved = {name: {"site": "admin"} for name in ("health", "metrics", "openapi")}
    sites: dict[str, Any] = {name: {"http_engine": engine} for name in ("main", "library", "admin")}
    settings = {"plugins": moved, "sites": {**sites, "admin": {**sites["admin"], "required_role": "admin"}}}
    with (
        running_host(PLUGINS, settings=settings, strict=True) as host,
        host.client("library") as library,
        host.client("main") as main,
        host.client("admin") as admin,
    ):
        tokens = {}
        for name in ("user", "admin"):
            token = library.get("/mylibrary/setup/login", auth=(f"{name}@example.org", name)).text
            tokens[name] = {"Authorization": f"Bearer {token}"}
        for path in ("/q", "/q/", "/q/dev", "/q/swagger-ui", "/q/health/"):
            assert [client.get(path).status_code for client in (main, library)] == [404, 404]
        for path in PATHS:
            assert [client.get(path).status_code for client in (main, library)] == [404, 404]
            assert admin.get(path).status_code == 401
            assert admin.get(path, headers=tokens["user"]).status_code == 403
            assert admin.get(path, headers=tokens["admin"]).status_code == 200
        assert main.get("/messages").status_code == 200


def test_the_description_names_the_sites_token() -> None:
    """Each operation there requires a bearer token, and describes the answers without a valid one."""
    sites = {"admin": {"required_role": "admin"}}
    settings = {"plugins": {"messages": {"site": "admin"}}, "sites": sites}
    with running_host(["openapi", "library-auth", "messages"], settings=settings) as host, host.client() as client:
        described = client.get("/q/openapi?format=json&site=admin").json()
    operations = [each for item in described["paths"].values() for each in item.values() if isinstance(each, dict)]
    assert operations
    for each in operations:
        assert each["security"] == [{"bearer": []}]
        assert {"401", "403"} <= each["responses"].keys()


def test_without_a_plugin_the_site_opens_no_port() -> None:
    """The site `admin` doesn't exist until a setting moves a plugin there."""
    with running_host(["health"]) as host:
        assert "admin" not in {listener.site for listener in host.host.serving.engines}
