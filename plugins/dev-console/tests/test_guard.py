"""The guard, from outside: everything that is no page of the console in a browser on this machine is refused."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import httpx
import pytest
from falcon.testing import create_environ

from plughost.testing import plugin_distribution, running_host

from .conftest import Console, Shop, Start, link


def test_without_dev_there_is_nothing() -> None:
    """A host without --dev has no console, and / is a 404."""
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


def test_the_root_leads_to_the_console(console: Console) -> None:
    """/ is a redirect to /q/dev, and what is below / is not."""
    answer = console.client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/q/dev")
    assert console.client.get("/other").status_code == 404


def test_the_root_can_be_left_to_others(start: Start) -> None:
    """With the setting root off, / is free."""
    with start(_settings={"plugins": {"dev-console": {"root": False}}}) as console:
        assert console.client.get("/").status_code == 404


@pytest.mark.parametrize("path", ["", "/", "/plugins", "/requests/new", "/jobs/x", "/pages/a/b", "/nothing"])
def test_without_a_session_every_path_is_closed(console: Console, path: str) -> None:
    """Nothing is shown but how to get a link, not even whether there is such a page."""
    answer = httpx.get(f"{console.origin}/q/dev{path}")
    assert answer.status_code == 403
    assert "plughost dev-console" in answer.text


def test_a_link_that_was_used_is_refused(console: Console) -> None:
    """A second browser gets nothing from it; the first, on its back button, is led on."""
    used = link(console.host)
    answer = httpx.get(used)
    assert (answer.status_code, "used already" in answer.text, answer.cookies) == (403, True, httpx.Cookies())
    assert console.client.get(used).status_code == 303


def test_a_new_link_is_told_to_who_asks_the_host(console: Console) -> None:
    """What the command prints opens the console."""
    told = console.host.host.view.answer_query("dev-console", "link")["link"]
    answer = httpx.get(told)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/q/dev")


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_looking_at_a_link_does_not_use_it_up(start: Start, engine: str) -> None:
    """HEAD, as previews and scanners send it, begins no session; the link opens the console once after that."""
    with start(_settings={"sites": {"main": {"http_engine": engine}}}) as console:
        told = console.host.host.view.answer_query("dev-console", "link")["link"]
        for _ in range(2):
            looked = httpx.head(told)
            assert (looked.status_code, "Set-Cookie" in looked.headers) == (303, False)
        assert [httpx.get(told).status_code for _ in range(2)] == [303, 403]


def test_the_cookie_is_for_the_console_alone(start: Start) -> None:
    """It is unreadable for scripts, for this site only, and for HTTPS where it came by that."""
    with start() as console:
        http = httpx.get(console.host.host.view.answer_query("dev-console", "link")["link"]).headers["Set-Cookie"]
        with console.host.client(scheme="https") as client:
            token = console.host.host.view.answer_query("dev-console", "link")["link"].partition("?")[2]
            https = client.get(f"/q/dev/open?{token}").headers["Set-Cookie"]
    for cookie in (http, https):
        assert {"HttpOnly", "SameSite=Strict", "Path=/q/dev"} <= set(cookie.split("; "))
    assert ("Secure" in http, "Secure" in https) == (False, True)


def test_a_cookie_that_was_changed_is_none(console: Console) -> None:
    """Neither a forged cookie nor one of another host opens the console."""
    name, value = next(iter(console.client.cookies.items()))
    for forged in (value[:-2] + "xx", "", "x.y.z"):
        assert httpx.get(f"{console.origin}/q/dev", headers={"Cookie": f"{name}={forged}"}).status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.2:{port}", "[::]:{port}"],
)
def test_a_foreign_host_is_refused(console: Console, host: str) -> None:
    """A DNS name that was made to point here opens nothing, nor does another port."""
    answer = console.get(headers={"Host": host.format(port=console.host.port())})
    assert answer.status_code == 403
    assert "localhost" in answer.text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_the_machines_own_names_are_let_in(console: Console, name: str) -> None:
    """Each name for this machine does."""
    assert console.get(headers={"Host": f"{name}:{console.host.port()}"}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"X-Forwarded-For": "203.0.113.7"}, {"Forwarded": "for=203.0.113.7"}, {"Via": "1.1 proxy"}]
)
def test_what_came_through_a_proxy_is_refused(console: Console, headers: dict[str, str]) -> None:
    """A proxy on this machine hands on requests from everywhere."""
    assert console.get(headers=headers).status_code == 403


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::1", "", "::ffff:203.0.113.7"])
def test_other_machines_are_refused(console: Console, address: str) -> None:
    """An address that is not this machine's opens nothing, cookie or not."""
    assert _asked_from(console, address) == "403"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_every_address_of_this_machine_is_let_in(console: Console, address: str) -> None:
    """Loopback has more than one address."""
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
def test_a_form_from_elsewhere_is_refused(console: Console, headers: dict[str, str]) -> None:
    """Even with the right cookie and token, a POST from another origin changes nothing."""
    assert console.post("/plugins/shop/state", headers=headers, state="disabled").status_code in (403, 415)
    assert console.client.get("/items").status_code == 200


def test_a_form_without_a_token_is_refused(console: Console) -> None:
    """Nor is one with the token of another session let through."""
    told = console.host.host.view.answer_query("dev-console", "link")["link"]
    with console.host.client() as client:
        client.get(told)
        other = Console(console.host, client).token()
    for token in ("", other, console.token()[:-1]):
        assert console.post("/plugins/shop/state", csrf=token, state="disabled").status_code == 403
    assert console.client.get("/items").status_code == 200


def test_another_sites_page_cannot_read(console: Console) -> None:
    """A fetch or a frame of another origin is refused; a link that is followed is not."""
    embedded = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    assert console.get("/requests/new", headers=embedded).status_code == 403
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert console.get(headers=framed).status_code == 403
    followed = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert console.get(headers=followed).status_code == 200


@pytest.mark.parametrize("path", ["", "/nothing", "/assets/console.js", "/open?link=x"])
def test_every_answer_tells_the_browser_what_to_refuse(console: Console, path: str) -> None:
    """Errors, too, carry the policy, which lets through no inline script or style."""
    headers = console.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (headers["Cache-Control"], headers["X-Frame-Options"]) == ("no-store", "DENY")


def test_signing_out_ends_the_session(console: Console) -> None:
    """The cookie is void afterwards, wherever it was copied to."""
    name, value = next(iter(console.client.cookies.items()))
    assert console.post("/leave").status_code == 303
    assert httpx.get(f"{console.origin}/q/dev", headers={"Cookie": f"{name}={value}"}).status_code == 403
