"""The guard refuses every request that does not come from a console page in a browser on this machine."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import httpx
import pytest
from falcon.testing import create_environ

from plughost.testing import plugin_distribution, running_host

from .conftest import Console, Shop, Start, link


def test_without_dev_there_is_no_console() -> None:
    """A host without --dev answers its paths and / with 404."""
    shop = plugin_distribution("shop", Shop)
    settings = {"sites": {"main": {"listeners": ["http"]}}}
    with (
        running_host(
            ["dev-console", "shop"], dev=False, settings=settings, distributions=[*metadata.distributions(), shop]
        ) as host,
        host.client() as client,
    ):
        for path in ("/", "/q/dev", "/q/dev/open", "/q/dev/plugins", "/q/dev/assets/console.css"):
            assert client.get(path).status_code == 404
        assert host.host.generation is not None
        assert list(host.host.generation.announcements()) == []


def test_the_root_redirects_to_the_console(console: Console) -> None:
    """/ redirects to /q/dev; other paths don't."""
    answer = console.client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/q/dev")
    assert console.client.get("/other").status_code == 404


def test_the_redirect_can_be_disabled(start: Start) -> None:
    """With the setting root off, / is free."""
    with start(_settings={"plugins": {"dev-console": {"root": False}}}) as console:
        assert console.client.get("/").status_code == 404


@pytest.mark.parametrize("path", ["", "/", "/plugins", "/requests/new", "/jobs/x", "/pages/a/b", "/nothing"])
def test_without_a_session_every_path_is_closed(console: Console, path: str) -> None:
    """The answer explains how to get a link, and does not show whether the page exists."""
    answer = httpx.get(f"{console.origin}/q/dev{path}")
    assert answer.status_code == 403
    assert "plughost dev-console" in answer.text


def test_a_used_link_is_refused(console: Console) -> None:
    """A second browser is refused; the first one, after its back button, is redirected."""
    used = link(console.host)
    answer = httpx.get(used)
    assert (answer.status_code, "used already" in answer.text, answer.cookies) == (403, True, httpx.Cookies())
    assert console.client.get(used).status_code == 303


def test_the_host_prints_a_new_link_on_request(console: Console) -> None:
    """The link from the command opens the console."""
    new_link = console.host.host.view.answer_query("dev-console", "link")["link"]
    answer = httpx.get(new_link)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/q/dev")


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_head_does_not_use_up_a_link(start: Start, engine: str) -> None:
    """HEAD, which previews and scanners send, starts no session; afterwards the link opens the console once."""
    with start(_settings={"sites": {"main": {"http_engine": engine}}}) as console:
        new_link = console.host.host.view.answer_query("dev-console", "link")["link"]
        for _ in range(2):
            looked = httpx.head(new_link)
            assert (looked.status_code, "Set-Cookie" in looked.headers) == (303, False)
        assert [httpx.get(new_link).status_code for _ in range(2)] == [303, 403]


def test_the_cookie_is_only_for_the_console(start: Start) -> None:
    """Scripts can't read it, it is for this site only, and over HTTPS it is for HTTPS only."""
    with start() as console:
        http = httpx.get(console.host.host.view.answer_query("dev-console", "link")["link"]).headers["Set-Cookie"]
        with console.host.client(scheme="https") as client:
            token = console.host.host.view.answer_query("dev-console", "link")["link"].partition("?")[2]
            https = client.get(f"/q/dev/open?{token}").headers["Set-Cookie"]
    for cookie in (http, https):
        assert {"HttpOnly", "SameSite=Strict", "Path=/q/dev"} <= set(cookie.split("; "))
    assert ("Secure" in http, "Secure" in https) == (False, True)


def test_a_forged_cookie_is_refused(console: Console) -> None:
    """A changed, empty or invented cookie doesn't open the console."""
    name, value = next(iter(console.client.cookies.items()))
    for forged in (value[:-2] + "xx", "", "x.y.z"):
        assert httpx.get(f"{console.origin}/q/dev", headers={"Cookie": f"{name}={forged}"}).status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:{port}", "[::]:{port}"],
)
def test_a_foreign_host_is_refused(console: Console, host: str) -> None:
    """A DNS name that points to this machine is refused, and so is another port."""
    answer = console.get(headers={"Host": host.format(port=console.host.port())})
    assert answer.status_code == 403
    assert "localhost" in answer.text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_the_machines_own_names_are_accepted(console: Console, name: str) -> None:
    """Each loopback name opens the console."""
    assert console.get(headers={"Host": f"{name}:{console.host.port()}"}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"X-Forwarded-For": "203.0.113.7"}, {"Forwarded": "for=203.0.113.7"}, {"Via": "1.1 proxy"}]
)
def test_a_proxied_request_is_refused(console: Console, headers: dict[str, str]) -> None:
    """A proxy on this machine may forward requests from anywhere."""
    assert console.get(headers=headers).status_code == 403


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::1", "", "::ffff:203.0.113.7"])
def test_other_machines_are_refused(console: Console, address: str) -> None:
    """An address of another machine is refused, even with a valid cookie."""
    assert _asked_from(console, address) == "403"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_is_accepted(console: Console, address: str) -> None:
    """There is more than one."""
    assert _asked_from(console, address) == "200"


def _asked_from(console: Console, address: str) -> str:
    cookie = "; ".join(f"{name}={value}" for name, value in console.client.cookies.items())
    headers = {"Cookie": cookie, "Host": f"127.0.0.1:{console.host.port()}"}
    environ: dict[str, Any] = create_environ("/q/dev", headers=headers)
    environ["REMOTE_ADDR"] = address
    statuses: list[str] = []
    list(console.host.host.serving.sites["main"](environ, lambda status, *_: statuses.append(status[:3])))
    return statuses[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "application/json"},
        {"Content-Type": "text/plain"},
    ],
)
def test_a_form_from_another_origin_is_refused(console: Console, headers: dict[str, str]) -> None:
    """Even with the right cookie and token, its POST changes nothing."""
    assert console.post("/plugins/shop/state", headers=headers, state="disabled").status_code in (403, 415)
    assert console.client.get("/items").status_code == 200


def test_a_form_without_a_token_is_refused(console: Console) -> None:
    """Another session's token is refused, too."""
    new_link = console.host.host.view.answer_query("dev-console", "link")["link"]
    with console.host.client() as client:
        client.get(new_link)
        other = Console(console.host, client).token()
    for token in ("", other, console.token()[:-1]):
        assert console.post("/plugins/shop/state", csrf=token, state="disabled").status_code == 403
    assert console.client.get("/items").status_code == 200


def test_another_sites_page_can_not_read(console: Console) -> None:
    """A fetch or a frame from another origin is refused; following a link is allowed."""
    embedded = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    assert console.get("/requests/new", headers=embedded).status_code == 403
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert console.get(headers=framed).status_code == 403
    followed = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert console.get(headers=followed).status_code == 200


@pytest.mark.parametrize("path", ["", "/nothing", "/assets/console.js", "/open?link=x"])
def test_every_answer_has_the_security_headers(console: Console, path: str) -> None:
    """Errors, too, have the policy, which allows no inline script or style."""
    headers = console.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["Cache-Control"], headers["X-Frame-Options"]) == ("no-store", "DENY")


def test_signing_out_ends_the_session(console: Console) -> None:
    """Copies of the cookie become invalid, too."""
    name, value = next(iter(console.client.cookies.items()))
    assert console.post("/leave").status_code == 303
    assert httpx.get(f"{console.origin}/q/dev", headers={"Cookie": f"{name}={value}"}).status_code == 403
