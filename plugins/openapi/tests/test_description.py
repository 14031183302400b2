"""`/q/openapi` over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import ValidationError

import plughost_openapi.plugin
from plughost import Operation, PluginContext, Route, RouteGroup, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host
from plughost_openapi.resources import Description
from plughost_openapi.settings import About

if TYPE_CHECKING:
    import falcon
    import httpx

OPENAPI = plugin_distribution("openapi", plughost_openapi.plugin)


@pytest.mark.parametrize(
    ("query", "accept", "content_type"),
    [
        ("", "*/*", "application/yaml"),
        ("", "text/html,application/xhtml+xml,*/*;q=0.8", "application/yaml"),
        ("", "application/json", "application/json"),
        ("", "application/vnd.oai.openapi+json", "application/vnd.oai.openapi+json"),
        ("?format=json", "*/*", "application/json"),
        ("?format=yaml", "application/json", "application/yaml"),
        ("?format=&site=", "*/*", "application/yaml"),
    ],
)
def test_the_format_is_negotiated(client: httpx.Client, query: str, accept: str, content_type: str) -> None:
    """It is YAML unless Accept or the address asks for JSON; both have the same content."""
    response = client.get(f"/q/openapi{query}", headers={"Accept": accept})
    assert (response.status_code, response.headers["Content-Type"]) == (200, content_type)
    assert yaml.safe_load(response.text)["paths"]["/q/openapi"]["get"]["tags"] == ["openapi"]


def test_an_accept_that_excludes_both_is_406(client: httpx.Client) -> None:
    """There is no third format."""
    assert client.get("/q/openapi", headers={"Accept": "image/png"}).status_code == 406


@pytest.mark.parametrize(("query", "status"), [("site=nowhere", 404), ("format=xml", 400)])
def test_an_unknown_site_or_format_is_explained(client: httpx.Client, query: str, status: int) -> None:
    """A site without routes is a 404, an unknown format a 400; both list the existing ones."""
    response = client.get(f"/q/openapi?{query}")
    assert response.status_code == status
    assert response.json()["detail"].startswith(query.partition("=")[0])


def test_an_unchanged_description_is_304(client: httpx.Client) -> None:
    """The ETag is the same until the description changes, also for HEAD, and differs between formats."""
    first = client.get("/q/openapi")
    tag = first.headers["ETag"]
    assert client.head("/q/openapi").headers["ETag"] == tag
    for known in (tag, f'"x", W/{tag}', "*"):
        again = client.get("/q/openapi", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert client.get("/q/openapi?format=json", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("Range", "bytes=0-9", 206), ("Range", "bytes=99999999-", 416), ("If-Match", '"x"', 412)],
)
def test_responses_to_ranges_and_conditions_are_described(
    client: httpx.Client, name: str, value: str, status: int
) -> None:
    """The description is sent as a file, and names the responses of files."""
    assert client.get("/q/openapi", headers={name: value}).status_code == status
    described = client.get("/q/openapi?format=json").json()["paths"]["/q/openapi"]["get"]["responses"]
    assert str(status) in described


def test_servers_have_the_readers_host_name(client: httpx.Client, host: RunningHost) -> None:
    """It comes from the Host header, unless anybody could have forged it."""
    for given, shown in [("api.localhost:1", "api.localhost"), ("[::1]:1", "[::1]"), ("example.org:1", "localhost")]:
        response = client.get("/q/openapi?format=json", headers={"Host": given})
        assert response.json()["servers"][0]["url"] == f"http://{shown}:{host.port()}"


@pytest.mark.parametrize("as_format", ["yaml", "json"])
def test_a_host_name_costs_no_rendering(client: httpx.Client, host: RunningHost, as_format: str) -> None:
    """Clients choose the name in Host, and rendering all takes a second; only the servers differ."""
    assert host.host.generation is not None
    (description,) = (
        route.resource
        for each in host.host.generation.sites["main"].groups
        for route in each.group.routes
        if isinstance(route.resource, Description)
    )
    first = yaml.safe_load(client.get(f"/q/openapi?format={as_format}").text)
    rendered = description._rendered.cache_info().misses
    for number in range(3):
        response = client.get(f"/q/openapi?format={as_format}", headers={"Host": f"h{number}.localhost"})
        servers = [
            {"url": f"{scheme}://h{number}.localhost:{host.port(scheme=scheme)}"} for scheme in ("http", "https")
        ]
        assert yaml.safe_load(response.text) == first | {"servers": servers}
    assert description._rendered.cache_info().misses == rendered


def test_it_follows_a_reload() -> None:
    """A newly installed plugin is described, with another ETag."""
    plugins = [OPENAPI]
    with running_host(distributions=plugins, settings={"required": ["openapi"]}) as host, host.client() as client:
        before = client.get("/q/openapi")
        assert "/more" not in before.text
        plugins.append(plugin_distribution("more", More()))
        assert host.host.reload().ok
        after = client.get("/q/openapi", headers={"If-None-Match": before.headers["ETag"]})
    assert after.status_code == 200
    assert "/more" in after.text


@pytest.mark.parametrize(
    ("dev", "table", "statuses"),
    [
        (True, {}, (200, 200)),
        (True, {"enabled": False}, None),
        (True, {"swagger_ui": False}, (200, 404)),
        (False, {}, None),
        (False, {"enabled": True}, (200, 404)),
        (False, {"swagger_ui": True}, (200, 200)),
    ],
)
def test_it_is_served_in_development_or_by_setting(
    dev: bool, table: dict[str, bool], statuses: tuple[int, int] | None
) -> None:
    """Without `--dev` nothing is served unless the settings allow it; description and page have separate settings."""
    settings = {"plugins": {"openapi": table}, "tls": {"self_signed": True}}
    with running_host(distributions=[OPENAPI], settings=settings, dev=dev, strict=True) as host:
        assert bool(host.host.ports) == bool(statuses)
        if statuses:
            with host.client() as client:
                found = tuple(client.get(path).status_code for path in ("/q/openapi", "/q/swagger-ui"))
            assert found == statuses


def test_configured_addresses_replace_the_listeners() -> None:
    """Behind a proxy, the settings name a site's servers, whose listeners clients never see."""
    settings = {"plugins": {"openapi": {"servers": {"main": ["https://api.example.org/"]}}}}
    with running_host(distributions=[OPENAPI], settings=settings) as host, host.client() as client:
        assert client.get("/q/openapi?format=json").json()["servers"] == [{"url": "https://api.example.org"}]


class More:
    """A plugin with one route."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Return nothing."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/more", routes=(Route("", self, {"GET": Operation(summary="Show more")}),))]


def test_licence_and_contact_come_from_the_operator(client: httpx.Client) -> None:
    """The description has a licence and a contact only if the settings do."""
    said = client.get("/q/openapi", headers={"Accept": "application/json"}).json()["info"]
    assert not {"license", "contact"} & said.keys()


def test_a_licence_needs_a_name() -> None:
    """OpenAPI requires it, so an address alone is refused; both are shown."""
    given = {"name": "MIT", "url": "https://acme.example/terms"}
    assert About.model_validate({"license": given}).info() == {"license": given}
    with pytest.raises(ValidationError, match="url needs name"):
        About.model_validate({"license": {"url": given["url"]}})
