"""Engines on ephemeral ports, and clients for every combination of engine, scheme and protocol version."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import pytest
from tests.engines.dispatching import QUEUE, THREADS, PlainApplication
from tests.lanes import LANES, Lane
from tests.waiting import wait_until

from plughost._api.host import Listener
from plughost._servers import Engine, EngineOptions, TLSFiles, open_engine
from plughost._servers.connections import open_socket
from plughost._servers.dispatcher import Dispatcher
from plughost._servers.processor import TOKIO_WORKER
from plughost._tls.certificates import ensure_self_signed

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

Environ = dict[str, Any]
WaitUntil = Callable[[Callable[[], Any]], None]
Exchange = Callable[[socket.socket, bytes], tuple[http.client.HTTPResponse, bytes]]


def tokio_workers() -> set[str]:
    """Return the native threads that have the name of tokio's workers."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            if (task / "comm").read_text() == f"{TOKIO_WORKER}\n":
                found.add(task.name)
    return found


@dataclass
class Served:
    """A running engine, and clients for it."""

    lane: Lane
    engine: Engine
    certificate: Path
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The engine's address."""
        return f"{self.lane.scheme}://127.0.0.1:{self.engine.port}"

    def client(self, **settings: Any) -> httpx.Client:
        """Return a client of the lane's protocol version for one thread: over HTTP/2 it confuses several threads."""
        client = httpx.Client(**self._settings, **settings)
        self.clients.append(client)
        return client

    def sharing_client(self) -> httpx.AsyncClient:
        """Return a client whose requests share one connection over HTTP/2, whatever their number."""
        return httpx.AsyncClient(**self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self.certificate) if self.lane.scheme == "https" else True
        return {
            "base_url": self.url,
            "http1": not self.lane.http2,
            "http2": self.lane.http2,
            "verify": context,
            "timeout": 60,
            "trust_env": False,
        }

    def connect(self, source: str = "127.0.0.1", protocol: str = "http/1.1") -> socket.socket:
        """Connect from an address, and complete the TLS handshake."""
        raw = socket.create_connection(("127.0.0.1", self.engine.port), timeout=20, source_address=(source, 0))
        return self.secure(raw, protocol)

    def secure(self, raw: socket.socket, protocol: str = "http/1.1") -> socket.socket:
        """Complete the connection's TLS handshake if the lane has TLS."""
        if self.lane.scheme == "http":
            return raw
        context = ssl.create_default_context(cafile=self.certificate)
        context.set_alpn_protocols([protocol])
        return context.wrap_socket(raw, server_hostname="127.0.0.1")

    def close(self) -> None:
        """Close the clients and the engine."""
        for client in self.clients:
            client.close()
        self.engine.drain(2)


class Serve(Protocol):
    """Starts an engine that is stopped after the test."""

    def __call__(
        self,
        application: WSGIApplication,
        lane: Lane | None = None,
        *,
        threads: int = 4,
        blocking_plugins: Mapping[str, Collection[str]] = MappingProxyType({}),
        **options: Any,
    ) -> Served:
        """Serve the application, with this limit of simultaneous slow requests."""
        ...


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> TLSFiles:
    """A self-signed certificate for 127.0.0.1."""
    return ensure_self_signed(tmp_path_factory.mktemp("certificate"), ())


@pytest.fixture(params=LANES, ids=str)
def lane(request: pytest.FixtureRequest) -> Lane:
    """Each way to reach an application."""
    chosen: Lane = request.param
    return chosen


@pytest.fixture(params=LANES[:3], ids=str)
def http1_lane(request: pytest.FixtureRequest) -> Lane:
    """Each way to reach an application over HTTP/1.1."""
    chosen: Lane = request.param
    return chosen


@pytest.fixture
def https_lane() -> Lane:
    """TLS with HTTP/1.1."""
    return LANES[2]


@pytest.fixture
def serve(certificate: TLSFiles) -> Iterator[Serve]:
    """Return a function that starts an engine."""
    with contextlib.ExitStack() as stack:

        def start(
            application: WSGIApplication,
            lane: Lane | None = None,
            *,
            threads: int = 4,
            blocking_plugins: Mapping[str, Collection[str]] = MappingProxyType({}),
            **options: Any,
        ) -> Served:
            chosen = lane or LANES[0]
            listener = Listener(site="main", scheme=chosen.scheme, address="127.0.0.1", port=0, engine=chosen.engine)
            dispatcher = Dispatcher(threads, share=threads)
            dispatcher.pool.plugins = blocking_plugins
            stack.callback(dispatcher.close, 2)
            tls = certificate if chosen.scheme == "https" else None
            engine = open_engine(
                PlainApplication(application),
                listener,
                open_socket(listener),
                EngineOptions(tls=tls, **options),
                dispatcher,
            )
            served = Served(chosen, engine, certificate.certificate)
            stack.callback(served.close)
            return served

        yield start


def echo_environ(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer with the strings of the environ, and with the body as `body`."""
    texts = {name: value for name, value in environ.items() if isinstance(value, str)}
    body = json.dumps(texts | {"body": environ["wsgi.input"].read(1 << 20).decode("latin-1")}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def count_body(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer with the number of bytes in the body, or with 413 if the body was too long to be read."""
    size = 0
    while part := environ["wsgi.input"].read(65536):
        size += len(part)
    said = environ.get("CONTENT_LENGTH") or "0"
    status = "200 OK" if int(said) == size else "413 Content Too Large"
    body = f"{size} of {said}".encode()
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


@pytest.fixture
def environ_app() -> WSGIApplication:
    """An application that answers with its environ."""
    return echo_environ


@pytest.fixture
def counting_app() -> WSGIApplication:
    """An application that answers with the length of the body."""
    return count_body


class Gate:
    """An application that answers `/held` once the gate is opened, and everything else at once."""

    def __init__(self) -> None:
        """Start with the gate closed."""
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer with the path."""
        if environ["PATH_INFO"].startswith("/held"):
            self.entered.release()
            assert self.opened.wait(20)
        body = environ["PATH_INFO"].encode("latin-1")
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]

    def wait_until_entered(self, requests: int = 1) -> None:
        """Wait until this many held requests have reached the application."""
        for _ in range(requests):
            assert self.entered.acquire(timeout=20)


@pytest.fixture
def patient_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drains wait for clients for any time, however late this machine runs them."""
    for name in ("granian._QUIET", "granian._BUSY", "waitress._QUIET", "waitress._STALLED"):
        monkeypatch.setattr(f"plughost._servers.{name}_SECONDS", 1000.0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """An application that holds requests; the gate is always opened at the end."""
    held = Gate()
    yield held
    held.opened.set()


@pytest.fixture(name="wait_until")
def waiting() -> WaitUntil:
    """Return a function that waits for a condition, or fails the test."""
    return wait_until


@pytest.fixture
def exchange() -> Exchange:
    """Return a function that sends raw bytes over a connection, and reads one response."""

    def send(connection: socket.socket, request: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response, response.read()

    return send


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    """A dispatcher with the default share; its threads are ended after the test."""
    made = Dispatcher(THREADS, queue_limit=QUEUE, queue_timeout=30)
    yield made
    assert made.close(20)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """The event that slow jobs wait for; it is always set at the end."""
    event = threading.Event()
    yield event
    event.set()
