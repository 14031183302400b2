"""Swagger UI's page and files, and its requests to the host's other listeners."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import httpx

    from plughost.testing import RunningHost

PAGE = "/q/swagger-ui"


def test_the_page_loads_its_own_files_only(client: httpx.Client) -> None:
    """Every address in the page is on this host and is served, and the page has no inline script."""
    page = client.get(PAGE)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(files) == 7
    assert [client.get(file).status_code for file in files] == [200] * 7
    assert re.findall(r"<script[^>]*>([^<]*)", page.text) == ["", "", ""]
    assert "style=" not in page.text


def test_a_policy_restricts_the_page_to_this_host(client: httpx.Client, host: RunningHost) -> None:
    """Scripts and styles come only from here, and requests go only to the host's listeners."""
    policy = dict(part.split(" ", 1) for part in client.get(PAGE).headers["Content-Security-Policy"].split("; "))
    assert (policy["default-src"], policy["script-src"]) == ("'none'", "'self'")
    assert "'unsafe-inline'" not in policy["style-src"]
    assert set(policy["connect-src"].split()) == {
        "'self'",
        *(f"{scheme}://127.0.0.1:{port}" for (_, scheme), port in host.host.ports.items()),
    }


def test_the_page_lists_every_site_its_own_first(client: httpx.Client) -> None:
    """The list at the top of the page starts with the page's own site."""
    assert 'data-sites="main library"' in client.get(f"{PAGE}/").text


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
        ("swagger-ui.css", "text/css; charset=utf-8"),
        ("favicon-32x32.png", "image/png"),
        ("LICENSE", "text/plain; charset=utf-8"),
    ],
)
def test_files_have_their_type_and_are_cached(client: httpx.Client, name: str, content_type: str) -> None:
    """A file has its media type, and a browser that has cached it gets 304, also from another host."""
    file = client.get(f"{PAGE}/{name}")
    assert (file.status_code, file.headers["Content-Type"], file.headers["Cache-Control"]) == (
        200,
        content_type,
        "no-cache",
    )
    tag = hashlib.sha256(file.content).hexdigest()[:32]  # not a time, which differs between hosts
    again = client.get(f"{PAGE}/{name}", headers={"If-None-Match": f'"{tag}"'})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "name", ["index.html", "nothing.js", "..%2Fplugin.py", "%2E%2E%2Fplugin.py", "%2Fetc%2Fpasswd"]
)
def test_no_other_file_is_served(client: httpx.Client, name: str) -> None:
    """A name that is not one of the page's files is a 404, whatever it points to."""
    assert client.get(f"{PAGE}/{name}").status_code == 404


def test_the_page_may_use_the_other_listeners(host: RunningHost) -> None:
    """Every listener answers a preflight from the page, and the page may read the answers; cookies are excluded."""
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for site, scheme in host.host.ports:
        with host.client(site, scheme) as client:
            origin = f"https://{client.base_url.host}:{host.port('main', 'https')}"
            asked = client.options("/notes", headers={"Origin": origin, **headers})
            assert (asked.status_code, asked.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
            answer = client.get("/nowhere", headers={"Origin": origin})
        assert answer.headers["Access-Control-Allow-Origin"] == origin
        assert "Access-Control-Allow-Credentials" not in answer.headers
        assert "Origin" in answer.headers["Vary"]


def test_other_pages_may_not_use_the_listeners(host: RunningHost) -> None:
    """Another host name, port or scheme, the other site, and invalid origins are refused."""
    main, library = host.port(), host.port("library")
    strangers = [f"http://evil.example:{main}", "http://127.0.0.1:1", f"https://127.0.0.1:{main}", "null", "http://["]
    for origin in [*strangers, f"http://127.0.0.1:{library}", f"http://127.0.0.1:{main}x", "http://127.0.0.1"]:
        with host.client("library") as client:
            answer = client.get("/notes", headers={"Origin": origin})
            asked = client.options("/notes", headers={"Origin": origin, "Access-Control-Request-Method": "GET"})
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert "Access-Control-Allow-Methods" not in asked.headers


def test_a_page_with_a_rebound_name_may_not_use_the_listeners(host: RunningHost) -> None:
    """After DNS rebinding, Origin and Host of a page of another site have one name; it can't write, nor read more."""
    for name, may_write in ("localhost", True), ("127.0.0.1", True), ("evil.example", False):
        headers = {"Host": f"{name}:{host.port('library')}", "Origin": f"http://{name}:{host.port()}"}
        with host.client("library") as client:
            answer = client.post("/notes", headers=headers, json={})
        assert (answer.status_code != 403) == may_write
        assert ("Access-Control-Allow-Origin" in answer.headers) == may_write
