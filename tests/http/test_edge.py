"""Requests for foreign hosts and from pages of other sites are refused, on each engine (CONTRACT 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.http.table import Table
from tests.lanes import LANES, Lane

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import Request, secure_url
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    import falcon

PAGE = "https://app.example.org"
SITE = {
    "allowed_hosts": ["127.0.0.1", "localhost", "Shop.example", "*.shop.example", "[::1]"],
    "cors": {"origins": [PAGE]},
}
WRITES = ("POST", "PUT", "DELETE", "PATCH")


def table_host(*, site: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return a host with the table's plugin."""
    settings = {"sites": {"main": site or {}}, **options.pop("settings", {})}
    return running_host(distributions=[plugin_distribution("table", Table())], settings=settings, **options)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Mapping[str, RunningHost]]:
    """A host on each engine, behind a trusted proxy."""
    with ExitStack() as stack:
        yield {
            engine: stack.enter_context(
                table_host(site={**SITE, "http_engine": engine}, settings={"trusted_proxies": ["127.0.0.1"]})
            )
            for engine in ("waitress", "granian")
        }


@pytest.fixture(params=LANES, ids=str)
def client(request: pytest.FixtureRequest, hosts: Mapping[str, RunningHost]) -> Iterator[httpx.Client]:
    """A client on each lane."""
    lane: Lane = request.param
    with hosts[lane.engine].client(scheme=lane.scheme, http2=lane.http2) as opened:
        yield opened


@pytest.mark.parametrize(
    "host", ["shop.example", "SHOP.example:8080", "www.shop.example", "shop.example.", "shop.example:", "[::1]:1"]
)
def test_allowed_hosts_are_answered(client: httpx.Client, host: str) -> None:
    """These are names in any case, subdomains of names with a star, and addresses, with any port, or an empty one."""
    assert client.get("/table/items/a", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:", "evilshop.example", "127.0.0.2", "shop.example.evil.example"]
)
def test_other_hosts_are_refused(client: httpx.Client, host: str) -> None:
    """The answer is 400 in the format of the group, or problem details, whether or not the resource exists."""
    answer = client.get("/table/items/a", headers={"Host": host})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    text = client.get("/text/items/a", headers={"Host": host})
    assert (text.status_code, text.headers["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert client.get("/nowhere", headers={"Host": host}).status_code == 400
    assert client.options("/table/items/a", headers={"Host": host}).status_code == 400


def test_a_cookie_of_backslashes_is_refused(client: httpx.Client) -> None:
    """A resource that reads it may take seconds, while nobody else is served; the answer has the group's format."""
    for value, status in (("x" * 16_000, 200), ("\\" * 500, 200), ("\\" * 501, 400), ("\\" * 16_000, 400)):
        response = client.get("/table/items/a", headers={"Cookie": f'a="{value}"'})
        assert response.status_code == status, len(value)
        text = client.get("/text/items/a", headers={"Cookie": f'a="{value}"'})
        assert (text.status_code == 400) == (text.headers["Content-Type"] == "text/plain; charset=utf-8")


def test_the_host_named_by_a_trusted_proxy_counts(client: httpx.Client) -> None:
    """The host that the client asked for is checked, not the one that the proxy asks for."""
    assert client.get("/table/items/a", headers={"X-Forwarded-Host": "shop.example"}).status_code == 200
    assert client.get("/table/items/a", headers={"X-Forwarded-Host": "evil.example"}).status_code == 400


FOREIGN: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-site", "Origin": "https://evil.shop.example"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "https://app.example.org.evil.example"},
    {"Origin": "http://["},
]


@pytest.mark.parametrize("sent", FOREIGN, ids=str)
@pytest.mark.parametrize("method", WRITES)
def test_a_page_of_another_site_cannot_write(client: httpx.Client, sent: dict[str, str], method: str) -> None:
    """The answer is 403 in the format of the group, whatever the method."""
    answer = client.request(method, "/table/items/a", headers=sent, content=b'{"text": "x"}')
    assert (answer.status_code, answer.headers["Content-Type"]) == (403, "application/problem+json")
    text = client.request(method, "/text/items/a", headers=sent, content=b'{"text": "x"}')
    assert (text.status_code, text.headers["Content-Type"]) == (403, "text/plain; charset=utf-8")


@pytest.mark.parametrize("sent", FOREIGN, ids=str)
def test_a_page_of_another_site_may_read(client: httpx.Client, sent: dict[str, str]) -> None:
    """Reading changes nothing, and the browser hides the answer from the page."""
    for method in ("GET", "HEAD", "OPTIONS"):
        assert client.request(method, "/table/items/a", headers=sent).status_code == 200


def test_own_pages_allowed_pages_and_other_clients_write(client: httpx.Client) -> None:
    """These are pages of the same host or allowed by CORS, typed addresses, and clients that are no browsers."""
    authority = client.base_url.netloc.decode()
    for sent in (
        {},
        {"Origin": f"http://{authority}"},
        {"Origin": f"https://{authority}"},
        {"Origin": "https://shop.example", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https"},
        {"Origin": "http://shop.example", "Host": "shop.example:80"},
        {"Origin": f"https://{authority}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"},
        {"Origin": PAGE},
    ):
        assert client.post("/table/items/a", json={"text": "x"}, headers=sent).status_code == 201, sent


@pytest.mark.parametrize(
    ("site", "warned"),
    [
        ({"address": "0.0.0.0"}, True),
        ({"address": "0.0.0.0", "allowed_hosts": ["shop.example"]}, False),
        ({"address": "0.0.0.0", "allowed_hosts": ["*"]}, False),
        ({}, False),
    ],
)
def test_a_site_that_answers_every_host_warns(site: dict[str, Any], warned: bool) -> None:
    """There is no warning if only this machine can reach it, or if the settings name the hosts."""
    with table_host(site=site) as host:
        assert host.host.generation is not None
        warnings = [each for each in host.host.generation.warnings if "allowed_hosts" in each]
    assert [each.startswith("the site main is reached from elsewhere (0.0.0.0)") for each in warnings] == [
        True
    ] * warned


class Links:
    """A plugin whose resource answers with the addresses for links."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with both addresses."""
        resp.media = [req.prefix, secure_url(req)]

    @hookimpl
    def register_routes(self) -> list[RouteGroup]:
        """Declare the route."""
        return [RouteGroup(prefix="/links", routes=(Route("", self, {"GET": Operation(summary="Tell")}),))]


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_no_link_uses_an_unchecked_host(engine: str) -> None:
    """Without `allowed_hosts`, links name localhost, except for this machine's names and those of a trusted proxy."""
    settings = {"sites": {"main": {"http_engine": engine}}, "trusted_proxies": ["127.0.0.2"]}
    proxy = httpx.HTTPTransport(local_address="127.0.0.2")
    with (
        running_host(distributions=[plugin_distribution("links", Links())], settings=settings) as host,
        host.client() as client,
        host.client(transport=proxy, headers={"X-Forwarded-Host": "shop.example"}) as proxied,
    ):
        port, secure = host.port(), host.port(scheme="https")
        for name in ("evil.example", "evil.example:81", "evil.example:", "localhost.evil.example", "10.1.2.3"):
            links = client.get("/links", headers={"Host": name}).json()
            assert links == [f"http://localhost:{port}", f"https://localhost:{secure}/links"]
        for name in ("127.0.0.1", "api.localhost", "[::1]"):
            links = client.get("/links", headers={"Host": f"{name}:{port}"}).json()
            assert links == [f"http://{name}:{port}", f"https://{name}:{secure}/links"]
        assert proxied.get("/links").json() == ["http://shop.example", f"https://shop.example:{secure}/links"]


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_a_page_with_a_rebound_name_cannot_write(engine: str) -> None:
    """Without `allowed_hosts`, only pages of addresses or this machine, and clients that are no browsers, can write."""
    with table_host(site={"http_engine": engine}) as host, host.client() as client:

        def written(name: str, **sent: str) -> int:
            answer: httpx.Response = client.post("/table/items/a", json={"text": "x"}, headers={"Host": name, **sent})
            return answer.status_code

        for name, status in (("evil.example", 403), ("localhost", 201), ("10.1.2.3:81", 201), ("[fe80::1]", 201)):
            assert written(name, Origin=f"http://{name}") == status
            assert written(name, **{"Sec-Fetch-Site": "same-origin"}) == status
        assert written("shop.example") == 201
