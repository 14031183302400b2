"""`--dev` on an address that other machines can reach."""

from __future__ import annotations

import pytest

from plughost.testing import running_host


@pytest.mark.parametrize(("address", "open_to_all"), [("0.0.0.0", True), ("127.0.0.1", False)])
@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_development_mode_exposes_nothing_to_others(engine: str, address: str, open_to_all: bool) -> None:
    """There are no demo users, console or Swagger UI, and a warning says so; on loopback there are."""
    plugins = ["library-auth", "dev-console", "openapi"]
    sites = {name: {"http_engine": engine} for name in ("main", "library")}
    with running_host(plugins, settings={"address": address, "sites": sites}) as host:
        generation = host.host.generation
        assert generation is not None
        assert any("no demo users" in warning for warning in generation.warnings) == open_to_all
        with host.client("library") as library:
            login = library.get("/mylibrary/setup/login", auth=("user@example.org", "user"))
        assert login.status_code == (401 if open_to_all else 200)
        if open_to_all:
            assert "main" not in generation.sites
        else:
            with host.client() as main:
                assert main.get("/q/swagger-ui", follow_redirects=True).status_code == 200
