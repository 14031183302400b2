"""Any request to any route over any listener is answered according to CONTRACT 2, never with a 5xx.

Each case of the tables is sent to one route of every plugin over one lane, in turn; methods, bodies and path fields
to every route. With `PLUGHOST_TEST_THOROUGH=1`, every case is sent to every route over every lane.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from tests.integration import hostile
from tests.integration.kit import ALL, LANES, Lane

from plughost.testing import RunningHost, running_host

if TYPE_CHECKING:
    from plughost._apps.mounted import MountedRoute

THOROUGH: Final = bool(os.environ.get("PLUGHOST_TEST_THOROUGH"))
SITES: Final = ("main", "library")
ALLOWED: Final = {507}  # v1 and v2 may be out of memory
MANY: Final = "1000000/minute"
SETTINGS: Final[dict[str, Any]] = {
    "trusted_proxies": ["127.0.0.1"],  # so that X-Forwarded-* is evaluated
    "plugins": {
        "library-auth": {"login_limit_account": MANY, "login_limit_address": MANY, "login_limit_anywhere": MANY},
        "profile-template": {"rate_limit": MANY},
    },
}

_request_id = re.compile(r"[A-Za-z0-9._-]{1,128}").fullmatch


@dataclass(frozen=True)
class Target:
    """A route of the host.

    Attributes:
        site: Its site.
        path: Its path; `{}` where a field of a template is.
        methods: The methods that it has.
        mounted: What the host knows of it.
    """

    site: str
    path: str
    methods: frozenset[str]
    mounted: MountedRoute

    def at(self, value: str = "1") -> str:
        """Return the path with a value for each field."""
        return self.path.replace("{}", value)


NextRoutes = Callable[[], list[Target]]
Clients = dict[tuple[str, Lane], httpx.Client]


@dataclass
class HostileClient:
    """Sends requests that no well-meaning client would, and checks the answers.

    Attributes:
        clients: A client for each site and lane.
        wrong: Descriptions of wrong answers.
    """

    clients: Clients
    wrong: list[str] = field(default_factory=list)
    _turn: Iterator[int] = field(default_factory=count)

    def send(
        self,
        target: Target,
        method: str = "GET",
        raw: str | None = None,
        headers: Iterable[tuple[bytes | str, bytes]] = (),
        content: bytes | Iterator[bytes] | None = None,
    ) -> None:
        """Send one request over the next lane, or over all, and record what is wrong with the answer."""
        lanes: tuple[Lane, ...] = LANES
        if isinstance(content, Iterator) or not THOROUGH:
            lanes = (LANES[next(self._turn) % len(LANES)],)
        if any(name == "Host" for name, _ in headers):
            lanes = LANES[:2]  # over HTTP/2, a stream with an invalid :authority is reset (RFC 9113, 8.1.1)
        path = (raw if raw is not None else target.at()).encode()
        for lane in lanes:
            client = self.clients[target.site, lane]
            named = [(name.encode() if isinstance(name, str) else name, value) for name, value in headers]
            request = client.build_request(method, "/", headers=named, content=content)
            request.extensions["target"] = path
            description = f"{lane} {method[:20]} {path[:80]!r} {[(name, value[:60]) for name, value in named]}"
            try:
                answer = client.send(request)
            except httpx.HTTPError as error:
                self.wrong.append(f"{description}: {type(error).__name__}: {error}")
            else:
                self.wrong += [f"{description}: {answer.status_code}: {fault}" for fault in faults(answer, target)]


def faults(answer: httpx.Response, target: Target) -> Iterator[str]:
    """Yield what is wrong with an answer."""
    if answer.status_code >= 500 and answer.status_code not in ALLOWED:
        yield f"a server error: {answer.text[:200]}"
    if not _request_id(answer.headers.get("X-Request-ID", "")):
        yield f"X-Request-ID is {answer.headers.get('X-Request-ID')!r}"
    if answer.headers.get("X-Content-Type-Options") != "nosniff":
        yield "nosniff is missing"
    kind = answer.headers.get("Content-Type")
    if answer.status_code in {204, 304} and (kind is not None or answer.content):
        yield f"a body or a Content-Type where there is none: {kind} {answer.content[:80]!r}"
    if not answer.content:
        return
    if answer.status_code >= 400 and kind not in {target.mounted.errors.media_type, *elsewhere(answer, target)}:
        yield f"an error as {kind}: {answer.text[:200]}"
    if kind is None:
        yield f"a body without Content-Type: {answer.content[:80]!r}"
    elif kind.partition(";")[0].endswith("json") and answer.request.method != "HEAD":
        try:
            json.loads(answer.content)
        except ValueError as error:
            yield f"no JSON: {error}"


def elsewhere(answer: httpx.Response, target: Target) -> Iterator[str]:
    """Yield the type of errors that the host answers: bad Hosts, too long addresses, unknown paths."""
    path = answer.request.extensions["target"].decode()
    prefix = target.mounted.template.partition("{")[0].rstrip("/")
    nobodys = answer.status_code == 404 and (not prefix or path.removeprefix(prefix)[:1] not in {"", "/"})
    if nobodys or answer.status_code == 414 or (answer.status_code == 400 and "Host" in answer.text):
        yield "application/problem+json"


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with every installed plugin."""
    with running_host(settings=SETTINGS, strict=True) as running:
        yield running


@pytest.fixture(scope="module")
def targets(host: RunningHost) -> list[Target]:
    """Every mounted route."""
    assert host.host.generation is not None
    return [
        Target(site, re.sub(r"\{[^}]+\}", "{}", template), frozenset(mounted.operations), mounted)
        for site, assembly in host.host.generation.sites.items()
        for group in assembly.groups
        for template, mounted in group.routes.items()
    ]


@pytest.fixture
def next_routes(targets: list[Target]) -> Callable[[], list[Target]]:
    """Return a function that returns each plugin's next route.

    The route of metrics comes only every tenth time: its answer grows with each kind of request. Without
    `PLUGHOST_TEST_ALL=1`, each call returns routes of a third of the plugins.
    """
    by_plugin: dict[str, list[Target]] = {}
    for target in targets:
        by_plugin.setdefault(target.mounted.plugin, []).append(target)
    turns = {plugin: cycle(routes) for plugin, routes in by_plugin.items()}
    asked = count()

    def chosen() -> list[Target]:
        if THOROUGH:
            return targets
        time = next(asked)
        left_out = {"metrics"} if time % 10 else set()
        called = turns if ALL else list(turns)[time % 3 :: 3]
        return [next(turns[plugin]) for plugin in called if plugin not in left_out]

    return chosen


@pytest.fixture(scope="module")
def clients(host: RunningHost) -> Iterator[Clients]:
    """A client for each site and lane."""
    with ExitStack() as stack:
        yield {
            (site, lane): stack.enter_context(host.client(site, lane.scheme, http1=not lane.http2, http2=lane.http2))
            for site in SITES
            for lane in LANES
        }


@pytest.fixture
def hostile_client(clients: Clients) -> Iterator[HostileClient]:
    """A sender of hostile requests; afterwards, all answers must have been right and the host must still serve."""
    hostile_client = HostileClient(clients)
    yield hostile_client
    assert hostile_client.wrong == [], "\n".join(hostile_client.wrong[:40])
    serves(clients)


def serves(clients: Clients) -> None:
    """Check that every listener answers."""
    paths = {"main": ("/api/v2/products", "/messages"), "library": ("/mylibrary/.well-known/jwks.json",)}
    for (site, lane), client in clients.items():
        for path in paths[site]:
            assert client.get(path).status_code == 200, (lane, path)


def test_methods(hostile_client: HostileClient, targets: list[Target]) -> None:
    """Every method is sent, whether or not a route has it."""
    for target in targets:
        for method in hostile.METHODS:
            hostile_client.send(target, method)
            hostile_client.send(target, method, content=b"{}")


def test_bodies(hostile_client: HostileClient, targets: list[Target]) -> None:
    """Bodies are malformed, nested, absurd or oversized, with and without a length."""
    json_type = [(b"Content-Type", b"application/json")]
    for target in targets:
        for method in sorted(target.methods & {"POST", "PUT"}):
            for body in hostile.BODIES:
                hostile_client.send(target, method, headers=json_type, content=body)
            for size in (hostile.MIB + 1, 3 * hostile.MIB):
                hostile_client.send(target, method, headers=json_type, content=b'{"sku": "' + b"x" * size)
                hostile_client.send(
                    target, method, headers=json_type, content=iter([b'{"sku": "', *[b"x" * 65536] * (size // 65536)])
                )
            hostile_client.send(target, method, headers=json_type, content=iter([b"{", b'"sku"']))


def test_content_types(hostile_client: HostileClient, targets: list[Target]) -> None:
    """Bodies have other media types, or malformed ones."""
    for target in targets:
        for method in sorted(target.methods & {"POST", "PUT"}) or ["GET"]:
            for kind in hostile.CONTENT_TYPES if method != "GET" else hostile.CONTENT_TYPES[:3]:
                hostile_client.send(target, method, headers=[(b"Content-Type", kind)], content=b'{"sku": "a"}')


@pytest.mark.parametrize("name", hostile.HEADERS)
def test_headers(hostile_client: HostileClient, next_routes: NextRoutes, name: str) -> None:
    """Header fields have meaningless values."""
    for value in hostile.HEADERS[name]:
        for target in next_routes():
            for method in sorted(target.methods - {"HEAD"}):
                hostile_client.send(target, method, headers=[(name, value)], content=None if method == "GET" else b"{}")


def test_logins(hostile_client: HostileClient, targets: list[Target]) -> None:
    """Credentials are invalid."""
    (login,) = (target for target in targets if target.path.endswith("/setup/login"))
    for value in hostile.LOGINS:
        hostile_client.send(login, headers=[(b"Authorization", value)])


def test_queries(hostile_client: HostileClient, next_routes: NextRoutes) -> None:
    """Query strings of all kinds."""
    for query in hostile.QUERIES:
        for target in next_routes():
            hostile_client.send(target, raw=f"{target.at()}?{query}")


def test_fields_of_paths(hostile_client: HostileClient, targets: list[Target]) -> None:
    """Ids and SKUs are impossible."""
    for target in targets:
        if "{}" in target.path:
            for value in hostile.FIELDS:
                for method in sorted(target.methods - {"HEAD"}):
                    hostile_client.send(
                        target, method, raw=target.at(value), content=b"{}" if method in {"POST", "PUT"} else None
                    )


def test_paths(hostile_client: HostileClient, next_routes: NextRoutes) -> None:
    """Paths have additions or another spelling."""
    for tail in hostile.TAILS:
        for target in next_routes():
            hostile_client.send(target, raw=f"{target.at()}{tail}")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("site", SITES)
def test_garbage(host: RunningHost, clients: Clients, site: str, scheme: str) -> None:
    """Bytes that are no HTTP are refused, or the connection is closed, and no listener fails."""
    for sent in hostile.GARBAGE:
        answer = exchange(host, site, scheme, sent)
        assert not re.match(rb"HTTP/1.[01] 50[02-4]", answer), (sent[:80], answer[:200])
        if scheme == "https":
            exchange(host, site, scheme, sent, tls=False)
    serves(clients)


def exchange(host: RunningHost, site: str, scheme: str, sent: bytes, *, tls: bool = True) -> bytes:
    """Send bytes to a listener, end the sending, and return its answer until it closes the connection."""
    received = b""
    try:
        with ExitStack() as stack:
            connection = socket.create_connection(("127.0.0.1", host.port(site, scheme)), timeout=60)
            stack.enter_context(connection)
            if scheme == "https" and tls:
                assert host.host.tls is not None
                context = ssl.create_default_context(cafile=str(host.host.tls.certificate))
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname="localhost"))
            connection.sendall(sent)
            socket.socket.shutdown(connection, socket.SHUT_WR)  # of TCP only; SSLSocket's would drop the TLS session
            while part := connection.recv(65536):
                received += part
    except OSError as error:  # it closed the connection before it had read everything
        if isinstance(error, TimeoutError):
            raise
    return received
