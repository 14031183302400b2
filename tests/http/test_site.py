"""A site: which forwarded headers it trusts, its HTTPS address, and draining."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import getcontext
from ipaddress import ip_network
from typing import Any

import falcon
import httpx
import pytest
from falcon.testing import create_environ
from structlog.contextvars import bind_contextvars, get_contextvars

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost._apps.mounting import mount
from plughost._apps.site import Site
from plughost.http import Request, secure_url
from plughost.http._environ import MOUNTED, SITE
from plughost.testing import plugin_distribution, running_host

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


def seen(headers: dict[str, str], peer: str = "10.0.0.1", trusted: Iterable[Any] = PROXIES) -> dict[str, Any]:
    """Return the environ that an app on a site gets."""
    given: list[dict[str, Any]] = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        given.append(environ)
        return []

    environ = create_environ(headers=headers, remote_addr=peer)
    Site("main", app, trusted)(environ, lambda *_: None)  # type: ignore[arg-type] # any WSGI app will do
    return given[0]


FORWARDED = {
    "X-Forwarded-For": "192.0.2.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "shop.example",
    "X-Forwarded-Port": "8443",
    "X-Real-IP": "192.0.2.7",
    "Forwarded": "for=192.0.2.7",
}


@pytest.mark.parametrize("trusted", [[], PROXIES])
def test_forwarded_headers_of_others_are_dropped(trusted: list[Any]) -> None:
    """Forwarded headers of clients that are no trusted proxies are dropped, so that plugins don't trust them either."""
    environ = seen(FORWARDED, peer="198.51.100.1", trusted=trusted)
    assert (environ["REMOTE_ADDR"], environ["wsgi.url_scheme"]) == ("198.51.100.1", "http")
    assert environ["HTTP_HOST"] == "falconframework.org"
    assert not [name for name in environ if "FORWARDED" in name or "REAL_IP" in name]


@pytest.mark.parametrize(("peer", "client"), [("10.0.0.1", "192.0.2.7"), ("198.51.100.1", "198.51.100.1")])
def test_a_limit_counts_the_client_behind_a_trusted_proxy(peer: str, client: str) -> None:
    """`client_of` returns the address that a trusted proxy forwards, and ignores those of other clients."""
    environ = create_environ(headers=FORWARDED, remote_addr=peer)
    del environ["wsgi.url_scheme"]  # an engine asks before it knows the scheme
    before = dict(environ)
    assert Site("main", None, PROXIES).client_of(environ) == client  # type: ignore[arg-type] # no app is called
    assert environ == before


@pytest.mark.parametrize("peer", ["10.0.0.1", "fd00::1", "::ffff:10.0.0.1"])
def test_a_trusted_proxy_is_believed(peer: str) -> None:
    """Client, scheme, host and port are those that a trusted proxy names, over IPv4 and IPv6."""
    environ = seen(FORWARDED, peer=peer)
    assert (environ["REMOTE_ADDR"], environ["wsgi.url_scheme"]) == ("192.0.2.7", "https")
    assert environ["HTTP_HOST"] == "shop.example:8443"


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("203.0.113.9, 192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, 10.0.0.9", "192.0.2.7"),
        ("10.0.0.8, 10.0.0.9", "10.0.0.8"),
        ("2001:db8::1, fd00::9", "2001:db8::1"),
        (" , 192.0.2.7 ,", "192.0.2.7"),
        ("192.0.2.7:4711", "192.0.2.7"),
        ("192.0.2.7, 10.0.0.9:4711", "192.0.2.7"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("192.0.2.7:rubbish", "10.0.0.1"),
        ("[192.0.2.7", "10.0.0.1"),
        ("rubbish", "10.0.0.1"),
        ("192.0.2.7, rubbish, 10.0.0.9", "10.0.0.9"),
        ("192.0.2.7, unknown", "10.0.0.1"),
        ("<script>", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_of_no_trusted_proxy(chain: str, client: str) -> None:
    """A chain is read backwards through trusted proxies; ports are ignored, and anything but an address ends it."""
    assert seen({"X-Forwarded-For": chain})["REMOTE_ADDR"] == client


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        ({"X-Forwarded-Host": "shop.example"}, "shop.example"),
        ({"X-Forwarded-Host": "evil.example, shop.example:81"}, "shop.example:81"),
        ({"X-Forwarded-Host": "[2001:db8::1]:81"}, "[2001:db8::1]:81"),
        ({"X-Forwarded-Host": "shop.example", "X-Forwarded-Port": "443", "X-Forwarded-Proto": "https"}, "shop.example"),
        ({"X-Forwarded-Host": "shop.example", "X-Forwarded-Port": "rubbish"}, "shop.example"),
        ({"X-Forwarded-Host": "shop.example:1", "X-Forwarded-Port": "2"}, "shop.example:1"),
        ({"X-Forwarded-Host": "a/b?c"}, "falconframework.org"),
        ({"X-Forwarded-Host": "user@evil.example"}, "falconframework.org"),
        ({"X-Forwarded-Host": "a\r\nSet-Cookie: b"}, "falconframework.org"),
        ({"X-Forwarded-Host": "a b"}, "falconframework.org"),
        ({"X-Forwarded-Host": "a:99999"}, "falconframework.org"),
        ({"X-Forwarded-Port": "8443"}, "falconframework.org"),
    ],
)
def test_a_forwarded_host_is_a_host_or_nothing(headers: dict[str, str], host: str) -> None:
    """Only a well-formed host gets into absolute URLs; if there are several, the last one counts."""
    assert seen(headers)["HTTP_HOST"] == host


@pytest.mark.parametrize(("chain", "scheme"), [("http, https", "https"), ("https, http", "http"), ("HTTPS ", "https")])
def test_the_last_scheme_counts(chain: str, scheme: str) -> None:
    """If proxies name several schemes, that of the nearest proxy counts."""
    assert seen({"X-Forwarded-Proto": chain})["wsgi.url_scheme"] == scheme


@pytest.mark.parametrize("scheme", ["ftp", "javascript", "", "https://x"])
def test_an_unknown_scheme_is_ignored(scheme: str) -> None:
    """Only http and https are accepted from a proxy."""
    assert seen({"X-Forwarded-Proto": scheme})["wsgi.url_scheme"] == "http"


def address(target: str, host: str | None, port: int | None = 8443) -> str | None:
    """Return the secure address of a request."""
    environ = create_environ(path="/a", query_string="b=c")
    site = Site("main", falcon.App())
    site.secure_port = port
    environ |= {"REQUEST_URI": target, SITE: site}
    if host is None:
        del environ["HTTP_HOST"]
    else:
        environ["HTTP_HOST"] = host
    return secure_url(Request(environ))


@pytest.mark.parametrize(
    ("host", "secure"),
    [
        ("localhost", "https://localhost:8443/a%2F?b=c"),
        ("localhost:8080", "https://localhost:8443/a%2F?b=c"),
        ("[::1]:8080", "https://[::1]:8443/a%2F?b=c"),
        ("[::1]", "https://[::1]:8443/a%2F?b=c"),
        (None, "https://falconframework.org:8443/a%2F?b=c"),
    ],
)
def test_the_secure_address_has_the_hosts_name_and_the_secure_port(host: str | None, secure: str) -> None:
    """A redirect to HTTPS keeps host, raw path and query, and names the secure port."""
    assert address("/a%2F?b=c", host) == secure


def test_the_default_port_is_not_named() -> None:
    """Port 443 is left out, and without a secure listener there is no address."""
    assert address("/a", "localhost", 443) == "https://localhost/a"
    assert address("/a", "localhost", None) is None


def test_a_replaced_app_is_drained_by_its_last_answer() -> None:
    """Draining waits for the old app's request, while the new app answers others."""
    answering, go_on = threading.Event(), threading.Event()

    def old(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        answering.set()
        go_on.wait(30)
        return [b"old"]

    def new(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        return [b"new"]

    site = Site("main", old)  # type: ignore[arg-type] # any WSGI app will do
    responses: list[Any] = []
    slow = threading.Thread(target=lambda: responses.append(site(create_environ(), lambda *_: None)))
    slow.start()
    assert answering.wait(30)
    site.swap(new)  # type: ignore[arg-type] # any WSGI app will do
    assert site(create_environ(), lambda *_: None) == [b"new"]
    assert site.drain(0) == {"": 1}
    go_on.set()
    assert not site.drain(30)
    slow.join()
    assert responses == [[b"old"]]
    gone = weakref.ref(old)
    del old, slow
    gc.collect()
    assert gone() is None, "the replaced app is kept until the next swap"


def test_requests_in_flight_are_listed_by_plugin_even_in_a_swapped_out_app() -> None:
    """Each request is listed with its plugin until its response ends, whichever app serves it."""

    def streams(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ[MOUNTED] = mount(environ["PATH_INFO"][1:], RouteGroup(prefix="/x", routes=()), 1).fallback
        return iter([b"a"])

    site = Site("main", streams)  # type: ignore[arg-type] # any WSGI app will do
    first: Any = site(create_environ("/one"), lambda *_: None)
    site.swap(streams)  # type: ignore[arg-type] # any WSGI app will do
    second: Any = site(create_environ("/two"), lambda *_: None)
    assert sorted(site.plugins_in_flight()) == ["one", "two"]
    first.close()
    assert list(site.plugins_in_flight()) == ["two"]
    second.close()
    assert list(site.plugins_in_flight()) == []


def test_a_stream_is_in_flight_until_it_is_closed() -> None:
    """A streamed body counts until the server closes it; an app that raises counts no more."""

    def streams(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        return iter([b"a"])

    def fails(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raise ValueError("broken")

    site = Site("main", streams)  # type: ignore[arg-type] # any WSGI app will do
    body: Any = site(create_environ(), lambda *_: None)
    site.swap(fails)  # type: ignore[arg-type] # any WSGI app will do
    assert site.drain(0) == {"": 1}
    body.close()
    body.close()
    assert not site.drain(30)
    with pytest.raises(ValueError, match="broken"):
        site(create_environ(), lambda *_: None)
    assert site.in_flight == 0


class Careless:
    """A plugin that sets things for its thread in a responder, in a stream and when that is closed."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Set them, and show those of the stream at its end."""
        getcontext().prec = 3
        bind_contextvars(user="ann")
        resp.stream = self.stream()

    def stream(self) -> Iterator[bytes]:
        """Show that they last until the end."""
        yield b"%d " % getcontext().prec
        getcontext().prec = 2
        yield b"%d %s" % (getcontext().prec, get_contextvars()["user"].encode())

    def on_put(self, req: Request, resp: falcon.Response) -> None:
        """Show what another request has set."""
        resp.media = [getcontext().prec, get_contextvars()]

    @hookimpl
    def register_routes(self, context: Any) -> list[RouteGroup]:
        """Mount it."""
        operations = {"GET": Operation(summary="Set"), "PUT": Operation(summary="Show")}
        return [RouteGroup(prefix="/careless", routes=(Route("", self, operations),))]


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_what_a_plugin_sets_for_its_thread_ends_with_the_request(engine: str) -> None:
    """Log fields and the precision of decimals last through its stream, and no later request has them."""
    plugins = [plugin_distribution("careless", Careless())]
    settings = {"sites": {"main": {"http_engine": engine, "threads": 1}}}
    with running_host(distributions=plugins, settings=settings) as host, host.client() as client:
        for _ in range(20):
            assert client.get("/careless").text == "3 2 ann"
            assert client.put("/careless").json() == [28, {}]


class Meeting:
    """A plugin whose requests wait until four of them run at once."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(4, timeout=20)

    def on_get(self, req: object, resp: object) -> None:
        """Wait for the others."""
        self.barrier.wait()

    @hookimpl
    def register_routes(self) -> list[RouteGroup]:
        """Declare the route."""
        return [RouteGroup(prefix="/meeting", routes=(Route("", self, {"GET": Operation(summary="Meet")}),))]


def test_threads_of_the_site_admin_are_added_to_those_of_the_others() -> None:
    """A plugin may have a quarter of all threads: with eight more, four slow requests at once instead of two."""
    settings = {"sites": {"admin": {"threads": 8}}}
    with (
        running_host(distributions=[plugin_distribution("meeting", Meeting())], settings=settings) as host,
        ThreadPoolExecutor(4) as pool,
    ):
        asked = [pool.submit(httpx.get, f"{host.url()}/meeting", timeout=60) for _ in range(4)]
        assert [each.result().status_code for each in asked] == [200] * 4
