"""The interface between the host and an engine."""

from __future__ import annotations

import logging
import math
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar
from wsgiref.types import StartResponse

if TYPE_CHECKING:
    from plughost.http._errors import ErrorFormat

_LOGGER: Final = logging.getLogger("plughost._servers")

BodyT = TypeVar("BodyT", bound="IncomingBody")
Address = tuple[str, int]
"""IP address and TCP port of a client."""

MEMORY_LIMIT: Final = 512 * 1024
"""Bytes of a request body that are held in memory. A larger one goes to a file."""

_MIN_BODY_BYTES: Final = 16 * 1024  # that each body counts for at least
_RATE_GRACE_SECONDS: Final = 20.0  # after which a body must be received or sent at the minimum rate
_MIN_RATE: Final = 500  # bytes a second
_RELOG_SECONDS: Final = 60.0


class ListenError(Exception):
    """A listener could not be opened. The message says which, why, and what to do."""


class CutOffError(Exception):
    """Raised by a body that ends too early. The engine then ends the response so that the client notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSFiles:
    """The certificate that an HTTPS listener shows.

    Attributes:
        certificate: PEM file with the certificate and its chain.
        key: PEM file with the private key, PKCS#8, not encrypted, mode 0600.
    """

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise OSError if a file can't be read, or the key doesn't fit."""
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of an engine.

    Attributes:
        connection_limit: Open connections at most. Further ones wait in the backlog.
        idle_timeout: Seconds after which a connection that sends nothing is closed.
        body_limit: Largest request body in bytes that is read. A larger one reaches the application with an
            empty `wsgi.input` and a CONTENT_LENGTH above the limit, and the application answers 413.
        body_timeout: Seconds that a request body may take in all. After 20 seconds, it must have come at 500 bytes
            a second, too.
        body_memory: Bytes of memory that unfinished bodies may take in all. Each counts for 16 KiB at least.
        tls: The certificate of an HTTPS listener. None for plain HTTP.
        tls_policy: `intermediate` speaks TLS 1.2 and 1.3, `modern` 1.3 alone.
        client_ca: PEM file of the authorities one of which must have signed a client's certificate. None asks for none.
    """

    connection_limit: int = 4096
    idle_timeout: int = 60
    body_limit: int = 1024 * 1024
    body_timeout: int = 300
    body_memory: int = 64 * 1024 * 1024
    tls: TLSFiles | None = None
    tls_policy: Literal["intermediate", "modern"] = "intermediate"
    client_ca: Path | None = None

    @property
    def eviction_interval(self) -> float:
        """Seconds between closings of idle connections at the limit. Each closes half, those idle for longest.

        With fewer connections it is shorter, so that a client behind a full backlog is answered within seconds.
        """
        return min(1.0, max(0.1, self.connection_limit / 1000))

    def is_overdue(self, now: float, *, started_at: float, received_at: float, size: int) -> bool:
        """Return whether a body that began and last brought data at these times takes too long."""
        return (
            now - received_at > self.idle_timeout
            or now - started_at > self.body_timeout
            or is_slow(now - started_at, size)
        )


def is_slow(seconds: float, size: int) -> bool:
    """Return whether this many bytes in this many seconds are less than the minimum rate."""
    return seconds > _RATE_GRACE_SECONDS + size / _MIN_RATE


RECEIVED: Final = "plughost.received"
"""Environ key of the time at which the request was complete, by `time.perf_counter()`. See `Application.timed`."""


class Application(Protocol):
    """What an engine calls: a WSGI application of several plugins.

    Attributes:
        timed: Whether engines record when a request was complete.
    """

    timed: bool

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request (PEP 3333)."""

    def plugin_of(self, environ: dict[str, Any]) -> str:
        """Return the plugin that a request is for. Empty if none."""

    def errors_of(self, environ: Mapping[str, Any]) -> ErrorFormat:
        """Return the error format of the plugin that a request is for."""

    def client_of(self, environ: dict[str, Any]) -> str:
        """Return the client's address, as a trusted proxy reports it if there is one."""

    def refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Respond that the plugin has too much to do."""


class IncomingBody(Protocol):
    """A request body that is being received."""

    size: int

    @property
    def client(self) -> str:
        """The address that it comes from."""


class OverloadLog:
    """Logs that a listener accepts little: once, and again only after a minute without overload."""

    def __init__(self) -> None:
        self._last_time = -math.inf

    def record(self, port: int, *, out_of_files: bool) -> None:
        """Record an overload now: no file can be opened, or the connection limit is reached."""
        now = time.monotonic()
        last, self._last_time = self._last_time, now
        if now > last + _RELOG_SECONDS:
            why = "this process may open no more files" if out_of_files else "it has as many connections as it may"
            _LOGGER.warning("port %d accepts little: %s", port, why)


def excess_bodies(bodies: Iterable[BodyT], limit: int) -> list[BodyT]:
    """Return which bodies, given the oldest first, to refuse so that the others fit into so many bytes of memory.

    They are the newest of the clients that hold most.
    """
    held = {each: min(max(each.size, _MIN_BODY_BYTES), MEMORY_LIMIT) for each in bodies}
    excess = sum(held.values()) - limit
    if excess <= 0:
        return []
    clients: dict[str, list[BodyT]] = {}
    sums: Counter[str] = Counter()
    for each, size in held.items():
        clients.setdefault(each.client, []).append(each)
        sums[each.client] += size
    refused = []
    while excess > 0:
        client = max(sums, key=sums.__getitem__)
        refused.append(clients[client].pop())
        sums[client] -= held[refused[-1]]
        excess -= held[refused[-1]]
    _LOGGER.warning(
        "Refused %d unfinished %s with 503, of the clients that held most: all took more than %d bytes of memory.",
        *(len(refused), "body" if len(refused) == 1 else "bodies", limit),
    )
    return refused


class Engine(Protocol):
    """Serves one WSGI application on one listener, from threads of its own.

    Whatever the engine, the application is called once the whole body has arrived, so that a slow client holds
    no thread: `wsgi.input` ends where the body ends and CONTENT_LENGTH is its true length, chunked bodies too.
    `REQUEST_URI` in the environ is the raw request target.
    """

    @property
    def port(self) -> int:
        """The TCP port it listens on, the real one where the listener asked for 0."""

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on."""

    def drain(self, grace: float) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads.

        What still runs after `grace` seconds is cut off. Return whether every request in flight was answered.
        """
