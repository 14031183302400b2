"""A site: the WSGI application that its listeners call. Its Falcon app can be swapped while it serves."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from plughost._logging import REQUEST_ID
from plughost._servers.base import CutOffError
from plughost._waiting import Pause
from plughost.http._environ import CUT_OFF, FAILED, FORWARDED, MOUNTED, REFUSED, SITE, TRUSTED
from plughost.http._errors import PROBLEM_DETAILS
from plughost.http._request import DEFAULT_PORTS, address_of, host_name
from plughost.http._response import check_part, close_stream, file_blocks
from plughost.http._routing import find_group, raw_path

if TYPE_CHECKING:
    from plughost._apps.application import App
    from plughost._apps.mounted import MountedRoute
    from plughost.http._errors import ErrorFormat

Network = IPv4Network | IPv6Network
StartResponse = Callable[..., Any]

_LOGGER: Final = logging.getLogger("plughost._servers")

_FORWARDED = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_REAL_IP",
)

# In the environ of a request in flight:
_ENDING: Final = "plughost.ending"  # whether its body ends at its next pause
_PAUSE: Final = "plughost.pause"  # the latest pause of its body, or None
# Other threads change these values, but may add no key: the request may iterate over its environ.
_STATE: Final = {CUT_OFF: False, _ENDING: False, _PAUSE: None}

_POLL_SECONDS: Final = 0.05
_END: Final[Any] = object()

_match_address = re.compile(r"(?:([\d.]+)|\[(.+)\])(?::\d{1,5})?").fullmatch


@dataclass(eq=False, slots=True)
class ServingApp:
    """A Falcon app on a site and its requests in flight.

    Attributes:
        requests: The environ of each request in flight, by its `id()`. Changed without a lock.
    """

    app: App
    prefixes: Mapping[str, MountedRoute]
    requests: dict[int, dict[str, Any]] = field(default_factory=dict)


class Site:
    """The WSGI application of a site.

    Attributes:
        secure_port: The port of its HTTPS listener. None if it has none.
        closing: Whether new bodies end at their first pause.
        timed: Whether engines record when requests arrive.
    """

    def __init__(
        self,
        name: str,
        app: App,
        trusted_proxies: Iterable[Network] = (),
        prefixes: Mapping[str, MountedRoute] = MappingProxyType({}),
    ) -> None:
        """Serve an app until it is swapped. `X-Forwarded-*` headers are dropped unless a trusted proxy sends them."""
        self.name = name
        self.secure_port: int | None = None
        self.closing = False
        self.timed = False
        self._trusted = tuple(trusted_proxies)
        self._drained = threading.Condition()
        self._current = ServingApp(app, prefixes)
        self._draining: list[ServingApp] = []

    def swap(self, app: App, prefixes: Mapping[str, MountedRoute] = MappingProxyType({})) -> None:
        """Send new requests to another app. `drain` waits for the requests in flight."""
        with self._drained:
            old, self._current = self._current, ServingApp(app, prefixes)
            self._draining = [each for each in (*self._draining, old) if each.requests]

    @property
    def in_flight(self) -> int:
        return len(self._current.requests)

    def plugins_in_flight(self) -> Iterator[str]:
        """Yield the plugin of each request in flight, or an empty string for no plugin. Swapped-out apps count too."""
        for serving_app in (self._current, *self._draining):
            yield from map(_plugin_of, tuple(serving_app.requests.values()))

    def drain(self, timeout: float, plugins: Collection[str] | None = None) -> Counter[str]:
        """Wait until swapped-out apps have no requests in flight. Return how many are left, by plugin."""
        deadline = monotonic() + timeout
        with self._drained:
            while left := self._unfinished_requests(plugins):
                remaining = deadline - monotonic()
                if remaining <= 0:
                    break
                # poll, since a request may be routed meanwhile to a plugin that is not waited for
                self._drained.wait(min(remaining, _POLL_SECONDS))
        return Counter(map(_plugin_of, left))

    def cut_off(self, plugins: Collection[str] | None = None) -> None:
        """Give up the requests in swapped-out apps. Their bodies break off, so that clients notice."""
        _end(self._unfinished_requests(plugins), CUT_OFF)

    def end_streams(self, plugins: Collection[str] | None = None, *, everything: bool = False) -> None:
        """End bodies at their next pause: those of swapped-out apps, or all with `everything`."""
        current = tuple(self._current.requests.values()) if everything else ()
        _end((*self._unfinished_requests(plugins), *current), _ENDING)

    def _unfinished_requests(self, plugins: Collection[str] | None) -> list[dict[str, Any]]:
        in_flight = (environ for each in self._draining for environ in tuple(each.requests.values()))
        return [
            environ
            for environ in in_flight
            if not environ[CUT_OFF] and (plugins is None or _plugin_of(environ) in {"", *plugins})
        ]

    def plugin_of(self, environ: dict[str, Any]) -> str:
        """Return the plugin whose prefix covers a request's path, or an empty string."""
        mounted = find_group(self._current.prefixes, raw_path(environ))
        return mounted.plugin if mounted is not None else ""

    def errors_of(self, environ: Mapping[str, Any]) -> ErrorFormat:
        """Return the error format of the plugin whose prefix covers a request's path."""
        mounted = find_group(self._current.prefixes, raw_path(environ))
        return mounted.errors if mounted is not None else PROBLEM_DETAILS

    def client_of(self, environ: dict[str, Any]) -> str:
        """Return the client's address, which trusted proxies forward."""
        seen = {"wsgi.url_scheme": "http", **environ}
        self._apply_forwarded(seen)
        return str(seen["REMOTE_ADDR"])

    def refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Respond that the request's plugin is overloaded, in the plugin's error format."""
        environ[REFUSED] = find_group(self._current.prefixes, raw_path(environ))
        return self(environ, start_response)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        environ.update(_STATE)
        request_key = id(environ)
        serving_app = self._current
        serving_app.requests[request_key] = environ
        while serving_app is not self._current:  # swapped meanwhile: `drain` may have missed this request
            self._finish_request(serving_app, request_key)
            serving_app = self._current
            serving_app.requests[request_key] = environ
        environ[SITE] = self
        environ["wsgi.file_wrapper"] = file_blocks
        context = copy_context()  # log fields or the precision of decimals that a plugin sets end with the request
        try:
            if not environ.keys().isdisjoint(_FORWARDED):
                self._apply_forwarded(environ)
            body = context.run(serving_app.app, environ, start_response)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: it gets a response, or is raised again
            try:
                body = context.run(_respond_to_failure, serving_app.app, environ, start_response, error)
            except BaseException:
                self._finish_request(serving_app, request_key)
                raise
        if type(body) is list:
            self._finish_request(serving_app, request_key)
            return body
        if self.closing:
            environ[_ENDING] = True
        return _StreamedBody(body, environ, context, partial(self._finish_request, serving_app, request_key))

    def _finish_request(self, serving_app: ServingApp, request_key: int) -> None:
        del serving_app.requests[request_key]
        if serving_app is not self._current:
            with self._drained:
                self._draining = [each for each in self._draining if each.requests]  # frees drained apps at once
                self._drained.notify_all()

    def _apply_forwarded(self, environ: dict[str, Any]) -> None:
        """Take client, scheme and host from a trusted proxy's headers. Drop these headers from other clients."""
        forwarded = {name: environ.pop(name) for name in _FORWARDED if name in environ}
        environ[FORWARDED] = True  # even if untrusted, for resources that may not be reached through a proxy
        if not self._trusted or not self._is_trusted(environ.get("REMOTE_ADDR", "")):
            return
        environ[TRUSTED] = True
        addresses = [address.strip() for address in forwarded.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        for address in reversed([_without_port(address) for address in addresses if address]):
            if address_of(address) is None:
                break
            environ["REMOTE_ADDR"] = address
            if not self._is_trusted(address):
                break
        scheme = forwarded.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            environ["wsgi.url_scheme"] = scheme
        host = forwarded.get("HTTP_X_FORWARDED_HOST", "").rpartition(",")[2].strip()
        port = forwarded.get("HTTP_X_FORWARDED_PORT", "").rpartition(",")[2].strip()
        if host and host_name(f"{host}:{port}") and port != DEFAULT_PORTS[environ["wsgi.url_scheme"]]:
            host = f"{host}:{port}"
        if host_name(host):
            environ["HTTP_HOST"] = host

    def _is_trusted(self, address: str) -> bool:
        parsed = address_of(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _without_port(address: str) -> str:
    """Return an address without the port that some proxies append, and without IPv6 brackets."""
    match = _match_address(address)
    return address if match is None else match[1] or match[2]


@dataclass(eq=False, slots=True)
class _StreamedBody:
    """A body that is produced while it is sent, in the request's context, and calls `on_close` when it is closed.

    If it fails, it logs the error and breaks off.
    """

    _body: Iterable[bytes]
    _environ: dict[str, Any]
    _context: Context
    _on_close: Callable[[], None]
    _closed: bool = False

    def __iter__(self) -> Iterator[bytes]:
        environ = self._environ
        try:
            for part in iter(partial(self._context.run, next, iter(self._body), _END), _END):
                if environ[CUT_OFF]:
                    raise CutOffError
                if type(part) is not bytes:
                    self._inspect_part(part)
                yield part
        except (CutOffError, GeneratorExit):
            raise
        except BaseException as error:
            self._context.run(_log_failure, environ)
            raise CutOffError from error

    def _inspect_part(self, part: bytes) -> None:
        """Refuse an invalid part, and end a pause if the body is to end."""
        check_part(part)
        if type(part) is Pause:
            self._environ[_PAUSE] = part
            if self._environ[_ENDING]:
                part.end()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._context.run(close_stream, self._body)
        finally:
            self._on_close()


def _respond_to_failure(
    app: App, environ: dict[str, Any], start_response: StartResponse, error: BaseException
) -> Iterable[bytes]:
    """Respond with the app's error format to an error that Falcon passes to no handler, or raise it the second time."""
    if FAILED in environ:
        raise error
    if (request_id := REQUEST_ID.get()) is not None:
        environ["HTTP_X_REQUEST_ID"] = request_id
    if not isinstance(error, Exception):
        failure = RuntimeError(f"the application raised {type(error).__name__}")
        failure.__cause__, error = error, failure
    environ[FAILED] = error
    environ[REFUSED] = environ.get(MOUNTED)
    failed = type(error), error, error.__traceback__
    return app(environ, cast("StartResponse", lambda *head: start_response(*head, failed)))


def _log_failure(environ: dict[str, Any]) -> None:
    """Log the current exception, after the response has begun."""
    method, path, plugin = environ["REQUEST_METHOD"], environ["PATH_INFO"], _plugin_of(environ) or None
    _LOGGER.exception("the response to %s %s failed", method, path, extra={"plugin": plugin})


def _end(requests: Iterable[dict[str, Any]], key: str) -> None:
    """Set a key in the environ of requests, and end their pauses."""
    for environ in requests:
        environ[key] = True
        pause: Pause | None = environ[_PAUSE]
        if pause is not None:
            pause.end()


def _plugin_of(environ: dict[str, Any]) -> str:
    """Return the plugin of a request, or an empty string if it has none or is not routed yet."""
    mounted: MountedRoute | None = environ.get(MOUNTED)
    return mounted.plugin if mounted is not None else ""
