"""A site: the WSGI application that its listeners call, whose Falcon app can be swapped while they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any

from plughost.http.request import is_host

if TYPE_CHECKING:
    from plughost.http.application import App
    from plughost.http.mounting import Mounted

Network = IPv4Network | IPv6Network
StartResponse = Callable[..., Any]

_FORWARDED = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_REAL_IP",
)

_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Assembly:
    """A Falcon app on a site and the requests that it is answering.

    Attributes:
        app: The app.
        calls: The environ of each request, by its identity; requests come and go without a lock.
    """

    def __init__(self, app: App) -> None:
        """Wrap an app that answers nothing yet."""
        self.app = app
        self.calls: dict[int, dict[str, Any]] = {}

    @property
    def in_flight(self) -> int:
        """How many requests it is answering."""
        return len(self.calls)


class Site:
    """The WSGI application of a site.

    Attributes:
        name: The site's name.
        secure_port: The port of its HTTPS listener; None where it has none.
    """

    def __init__(self, name: str, app: App, trusted_proxies: Iterable[Network] = ()) -> None:
        """Make a site.

        Args:
            name: The site's name.
            app: What answers its requests until it is swapped.
            trusted_proxies: Whose `X-Forwarded-*` headers are believed. Everybody else's are dropped.
        """
        self.name = name
        self.secure_port: int | None = None
        self._trusted = tuple(trusted_proxies)
        self._drained = threading.Condition()
        self._current = Assembly(app)
        self._leaving: list[Assembly] = []

    def swap(self, app: App) -> Assembly:
        """Let new requests be answered by an app; return the assembly that answered them so far."""
        with self._drained:
            old, self._current = self._current, Assembly(app)
            self._leaving = [each for each in (*self._leaving, old) if each.calls]
        return old

    @property
    def in_flight(self) -> int:
        """How many requests the current app is answering."""
        return self._current.in_flight

    def plugins_in_flight(self) -> Iterator[str]:
        """Yield the plugin of each request in flight, also in an app that was swapped out; empty for that of none."""
        for assembly in (self._current, *self._leaving):
            for environ in tuple(assembly.calls.values()):
                mounted: Mounted | None = environ.get("plughost.mounted")
                yield mounted.plugin if mounted is not None else ""

    def drain(self, assembly: Assembly, timeout: float) -> bool:
        """Wait until an assembly that was swapped out has answered its last request.

        Args:
            assembly: What `swap` returned.
            timeout: Seconds to wait at most.

        Returns:
            Whether nothing is in flight any more.
        """
        with self._drained:
            return self._drained.wait_for(lambda: not assembly.calls, timeout)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request (PEP 3333)."""
        call = id(environ)
        assembly = self._current
        assembly.calls[call] = environ
        while assembly is not self._current:  # swapped out before it was counted here: it may count as drained
            self._leave(assembly, call)
            assembly = self._current
            assembly.calls[call] = environ
        environ["plughost.site"] = self
        try:
            if not environ.keys().isdisjoint(_FORWARDED):
                self._apply_forwarded(environ)
            body = assembly.app(environ, start_response)
        except BaseException:
            self._leave(assembly, call)
            raise
        if type(body) is list:
            self._leave(assembly, call)
            return body
        return _Streamed(body, lambda: self._leave(assembly, call))

    def _leave(self, assembly: Assembly, call: int) -> None:
        del assembly.calls[call]
        if assembly is not self._current and not assembly.calls:
            with self._drained:
                self._drained.notify_all()

    def _apply_forwarded(self, environ: dict[str, Any]) -> None:
        """Believe a trusted proxy about client, scheme and host; drop what anybody else claims."""
        claimed = {name: environ.pop(name) for name in _FORWARDED if name in environ}
        environ["plughost.forwarded"] = True  # believed or not: what must not be reached through a proxy asks
        if not self._trusted or not self._is_trusted(environ.get("REMOTE_ADDR", "")):
            return
        addresses = [address.strip() for address in claimed.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        for address in reversed([address for address in addresses if address]):
            if not _is_address(address):
                break
            environ["REMOTE_ADDR"] = address
            if not self._is_trusted(address):
                break
        scheme = claimed.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            environ["wsgi.url_scheme"] = scheme
        host = claimed.get("HTTP_X_FORWARDED_HOST", "").rpartition(",")[2].strip()
        port = claimed.get("HTTP_X_FORWARDED_PORT", "").rpartition(",")[2].strip()
        if host and is_host(f"{host}:{port}") and port != _DEFAULT_PORTS[environ["wsgi.url_scheme"]]:
            host = f"{host}:{port}"
        if is_host(host):
            environ["HTTP_HOST"] = host

    def _is_trusted(self, address: str) -> bool:
        if not _is_address(address):
            return False
        parsed = ip_address(address)
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed  # as a dual-stack socket shows IPv4
        return any(parsed in network for network in self._trusted)


class _Streamed:
    """A body that is produced while it is sent; tells when it is done."""

    def __init__(self, body: Iterable[bytes], done: Callable[[], None]) -> None:
        self._body = body
        self._done = done
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the body; servers call this once, whether or not all was sent."""
        if self._closed:
            return
        self._closed = True
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._done()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
