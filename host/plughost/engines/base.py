"""The interface between the host and an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import socket


class ListenError(Exception):
    """A listener could not be opened; the message says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSFiles:
    """The certificate that an HTTPS listener shows.

    Attributes:
        certificate: PEM file with the certificate and its chain.
        key: PEM file with the private key, PKCS#8, mode 0600.
        password: What the key is encrypted with, if it is.
    """

    certificate: Path
    key: Path
    password: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address at which a site is reached.

    Attributes:
        site: The site's name.
        scheme: How it is spoken to.
        address: An IP address or a host name to bind.
        port: The TCP port; 0 lets the system choose one.
        engine: Which engine serves it.
    """

    site: str
    scheme: Literal["http", "https"]
    address: str
    port: int
    engine: Literal["waitress", "granian"]

    def __str__(self) -> str:
        """Return the listener's URL."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of an engine.

    Attributes:
        threads: Worker threads that call the application.
        connection_limit: Open connections at most; further ones wait in the backlog.
        idle_timeout: Seconds after which a connection that sends nothing is closed.
        body_limit: Largest request body in bytes that is read. A larger one reaches the application with an
            empty `wsgi.input` and a CONTENT_LENGTH above the limit, and the application answers 413.
    """

    threads: int = 4
    connection_limit: int = 4096
    idle_timeout: int = 60
    body_limit: int = 1024 * 1024


class Engine(Protocol):
    """Serves one WSGI application on one listener, from threads of its own.

    Whatever the engine, the application is called once the whole body has arrived, so that a slow client holds
    no thread: `wsgi.input` ends where the body ends and CONTENT_LENGTH is its true length, chunked bodies too.
    `REQUEST_URI` in the environ is the raw request target.
    """

    @property
    def port(self) -> int:
        """The TCP port it listens on, the real one where the listener asked for 0; valid once started."""
        ...

    def start(self, inherited: socket.socket | None = None) -> None:
        """Open the listener and serve; return when connections are accepted.

        Args:
            inherited: A listening socket to use instead of opening one.

        Raises:
            ListenError: The address cannot be had.
        """
        ...

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on."""
        ...

    def drain(self, grace: float) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads.

        Args:
            grace: Seconds after which what still runs is cut off.

        Returns:
            Whether every request in flight was answered.
        """
        ...
