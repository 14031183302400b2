"""A site: the WSGI application that its listeners call, whose Falcon app can be swapped while they do."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from plughost._apps.streams import blocks, close_stream
from plughost._logging import this_thread
from plughost._servers.base import CutOffError
from plughost._waiting import Pause
from plughost.http._request import BEGINS, FAILED, OVERLOADED, TRUSTED, address_of, is_host
from plughost.http._response import check_part
from plughost.http._routing import find_group, raw_path

if TYPE_CHECKING:
    from plughost._apps.application import App
    from plughost._apps.mounted import Mounted

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
_CUT_OFF: Final = "plughost.cut_off"  # its body is not to be sent to its end
_ENDING: Final = "plughost.ending"  # its body is to end at its next pause
_PAUSE: Final = "plughost.pause"  # the latest pause of its body
_LOOK_SECONDS: Final = 0.05

_with_port = re.compile(r"(?:([\d.]+)|\[(.+)\])(?::\d{1,5})?").fullmatch
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(eq=False, slots=True)
class Assembly:
    """A Falcon app on a site and the requests that it is answering.

    Attributes:
        app: The app.
        prefixes: A route group's prefix to what stands for all below it.
        calls: The environ of each request, by its identity. Requests come and go without a lock.
    """

    app: App
    prefixes: Mapping[str, Mounted]
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)


class Site:
    """The WSGI application of a site.

    Attributes:
        name: The site's name.
        secure_port: The port of its HTTPS listener. None where it has none.
        closing: Whether bodies that begin now end at their first pause.
        timed: Whether engines note when a request was there.
    """

    def __init__(
        self,
        name: str,
        app: App,
        trusted_proxies: Iterable[Network] = (),
        prefixes: Mapping[str, Mounted] = MappingProxyType({}),
    ) -> None:
        """Let an app answer until it is swapped. `X-Forwarded-*` headers of others than trusted proxies are dropped."""
        self.name = name
        self.secure_port: int | None = None
        self.closing = False
        self.timed = False
        self._trusted = tuple(trusted_proxies)
        self._drained = threading.Condition()
        self._current = Assembly(app, prefixes)
        self._leaving: list[Assembly] = []

    def swap(self, app: App, prefixes: Mapping[str, Mounted] = MappingProxyType({})) -> None:
        """Send new requests to another app. `drain` waits for those in the previous one."""
        with self._drained:
            old, self._current = self._current, Assembly(app, prefixes)
            self._leaving = [each for each in (*self._leaving, old) if each.calls]

    @property
    def in_flight(self) -> int:
        """How many requests the current app is answering."""
        return len(self._current.calls)

    def plugins_in_flight(self) -> Iterator[str]:
        """Yield the plugin of each request in flight, in swapped-out apps too. Empty for a request of no plugin."""
        for assembly in (self._current, *self._leaving):
            yield from map(_plugin_of, tuple(assembly.calls.values()))

    def drain(self, timeout: float, plugins: Collection[str] | None = None) -> Counter[str]:
        """Wait until what was swapped out has answered its last request; return how many it has not, by plugin."""
        until = monotonic() + timeout
        with self._drained:
            while left := self._swapped_out(plugins):
                patience = until - monotonic()
                if patience <= 0:
                    break
                # not for all of it: a request that was not routed yet may be nobody's to wait for
                self._drained.wait(min(patience, _LOOK_SECONDS))
        return Counter(map(_plugin_of, left))

    def cut_off(self, plugins: Collection[str] | None = None) -> None:
        """Wait no more for what was swapped out: in place of its next part, a body ends so that its client notices."""
        for environ in self._swapped_out(plugins):
            environ[_CUT_OFF] = True
            _end_pause(environ)

    def end_streams(self, plugins: Collection[str] | None = None, *, everything: bool = False) -> None:
        """Let bodies end at their next pause: those of what was swapped out, or everything."""
        current = tuple(self._current.calls.values()) if everything else ()
        for environ in (*self._swapped_out(plugins), *current):
            environ[_ENDING] = True
            _end_pause(environ)

    def _swapped_out(self, plugins: Collection[str] | None) -> list[dict[str, Any]]:
        calls = (environ for each in self._leaving for environ in tuple(each.calls.values()) if _CUT_OFF not in environ)
        return [environ for environ in calls if plugins is None or _plugin_of(environ) in {"", *plugins}]

    def plugin_of(self, environ: dict[str, Any]) -> str:
        """Return the plugin whose prefix covers a request's path. Empty where none does."""
        mounted = find_group(self._current.prefixes, raw_path(environ))
        return mounted.plugin if mounted is not None else ""

    def client_of(self, environ: dict[str, Any]) -> str:
        """Return the address that a request comes from, which a trusted proxy tells."""
        seen = {"wsgi.url_scheme": "http", **environ}
        self._apply_forwarded(seen)
        return str(seen["REMOTE_ADDR"])

    def refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer that the plugin of a request has too much to do, as the app answers errors."""
        environ[OVERLOADED] = find_group(self._current.prefixes, raw_path(environ))
        return self(environ, start_response)

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
        environ["wsgi.file_wrapper"] = blocks
        try:
            if not environ.keys().isdisjoint(_FORWARDED):
                self._apply_forwarded(environ)
            body = assembly.app(environ, start_response)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: it is answered, or raised again
            try:
                body = _fail(assembly.app, environ, start_response, error)
            except BaseException:
                self._leave(assembly, call)
                raise
        if type(body) is list:
            self._leave(assembly, call)
            return body
        if self.closing:
            environ[_ENDING] = True
        fail = partial(_fail, assembly.app, environ, start_response)
        return _Streamed(body, environ, fail, lambda: self._leave(assembly, call))

    def _leave(self, assembly: Assembly, call: int) -> None:
        del assembly.calls[call]
        if assembly is not self._current:
            with self._drained:
                self._leaving = [each for each in self._leaving if each.calls]  # nothing keeps it until the next swap
                self._drained.notify_all()

    def _apply_forwarded(self, environ: dict[str, Any]) -> None:
        """Believe a trusted proxy about client, scheme and host. Drop what anybody else claims."""
        claimed = {name: environ.pop(name) for name in _FORWARDED if name in environ}
        environ["plughost.forwarded"] = True  # believed or not: what must not be reached through a proxy asks
        if not self._trusted or not self._is_trusted(environ.get("REMOTE_ADDR", "")):
            return
        environ[TRUSTED] = True
        addresses = [address.strip() for address in claimed.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        for address in reversed([_without_port(address) for address in addresses if address]):
            if address_of(address) is None:
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
        parsed = address_of(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _without_port(address: str) -> str:
    """Return an address without the port that some proxies add to it, and without the brackets of IPv6."""
    found = _with_port(address)
    return address if found is None else found[1] or found[2]


class _Streamed:
    """A body that is produced while it is sent, and reports when it is done.

    One that fails before its first part is answered by `fail`. One that fails later is logged, and cut off.
    """

    def __init__(
        self,
        body: Iterable[bytes],
        environ: dict[str, Any],
        fail: Callable[[BaseException], Iterable[bytes]],
        done: Callable[[], None],
    ) -> None:
        self._body = body
        self._environ = environ
        self._fail = fail
        self._done = done
        self._begun = False
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        environ = self._environ
        try:
            for part in self._body:
                if _CUT_OFF in environ:
                    raise CutOffError
                if type(part) is not bytes or not part or not self._begun:
                    self._look_at(part)
                yield part
        except (CutOffError, GeneratorExit):
            raise
        except BaseException as error:
            if not self._begun:
                yield from self._answer(error)
                return
            _log_failure(environ)
            raise CutOffError from error

    def _look_at(self, part: bytes) -> None:
        """Refuse what is no part, note the first one, and end a pause where the body is to end."""
        check_part(part)
        if part and not self._begun:
            self._begin()
        elif type(part) is Pause:
            self._environ[_PAUSE] = part
            if _ENDING in self._environ:
                part.end()

    def _begin(self) -> None:
        self._begun = True
        begins = self._environ.get(BEGINS)
        if begins is not None:
            begins()
            del self._environ[BEGINS]

    def _answer(self, error: BaseException) -> Iterable[bytes]:
        """Return the error's own body, in place of the one that failed."""
        self._begun = True  # as it is noted by itself
        failed, self._body = self._body, ()
        try:
            self._body = self._fail(error)
        finally:
            with suppress(Exception):  # what is answered already is an error
                close_stream(failed)
        return self._body

    def close(self) -> None:
        """Close the body. Servers call this once, whether or not all was sent."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._begun:
                self._begin()
            close_stream(self._body)
        finally:
            self._done()


def _fail(app: App, environ: dict[str, Any], start_response: StartResponse, error: BaseException) -> Iterable[bytes]:
    """Answer a request that failed where Falcon gives it to no handler, as the app answers errors.

    Raises:
        BaseException: The error, where this is the second one.
    """
    request_id, this_thread.request_id = this_thread.request_id, None
    if FAILED in environ:
        raise error
    if request_id is not None:
        environ["HTTP_X_REQUEST_ID"] = request_id
    if not isinstance(error, Exception):
        failure = RuntimeError(f"the application raised {type(error).__name__}")
        failure.__cause__, error = error, failure
    environ[FAILED] = error
    environ[OVERLOADED] = environ.get("plughost.mounted")
    failed = type(error), error, error.__traceback__
    return app(environ, cast("StartResponse", lambda *head: start_response(*head, failed)))


def _log_failure(environ: dict[str, Any]) -> None:
    """Log the exception at hand, with the id of a request whose response has begun."""
    this_thread.request_id = environ.get("HTTP_X_REQUEST_ID")
    try:
        _LOGGER.exception("the response to %s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
    finally:
        this_thread.request_id = None


def _end_pause(environ: dict[str, Any]) -> None:
    pause: Pause | None = environ.get(_PAUSE)
    if pause is not None:
        pause.end()


def _plugin_of(environ: dict[str, Any]) -> str:
    """Return the plugin that answers a request. An empty name where none does, or it was not routed yet."""
    mounted: Mounted | None = environ.get("plughost.mounted")
    return mounted.plugin if mounted is not None else ""
