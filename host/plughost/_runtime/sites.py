"""Serving: the open sites of a host, their engines and their listeners."""

from __future__ import annotations

import logging
import ssl
import sys
import threading
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from plughost._api.errors import CertificateError
from plughost._api.host import Listener
from plughost._apps.site import Site
from plughost._runtime.sockets import Sockets
from plughost._servers import Engine, EngineOptions, open_engine
from plughost._servers.connections import connections_per_listener, raise_file_limit
from plughost._servers.dispatcher import Dispatcher
from plughost.http._request import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from plughost._apps.application import SiteApp
    from plughost._servers.granian import GranianEngine
    from plughost._settings.models import EngineName, Scheme, SiteSettings
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS


_LOGGER: Final = logging.getLogger("plughost._servers")
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread with a new request waits for the interpreter while another computes; Python's default is 5 ms."""


class Serving:
    """The open sites of a host: their engines, the dispatcher that they share, and the certificates in use."""

    def __init__(self, settings: Settings, tls: Callable[[], PreparedTLS], sockets: Sockets | None = None) -> None:
        """Serve nothing yet. Ports and engines stay as in these settings; `tls` returns the certificate."""
        self.sites: dict[str, Site] = {}
        self.engines: dict[Listener, Engine] = {}
        requests, sites = settings.host.requests, settings.host.sites
        self.dispatcher: Dispatcher = Dispatcher(
            sum(each.threads for name, each in sites if name != "admin" or "threads" in each.model_fields_set),
            share=requests.plugin_threads,
            queue_limit=requests.plugin_queue,
            queue_timeout=requests.queue_timeout,
            one_processor=requests.one_processor,
        )
        self.certificates: dict[Listener, PreparedTLS] = {}
        self._client_authorities: dict[Listener, bytes] = {}
        self._file_limit = sys.maxsize
        self._connection_limits: dict[Listener, int] = {}
        self._settings = settings
        self._tls = tls
        self._sockets = sockets or Sockets()

    def prepare(self, names: Collection[str]) -> None:
        """Bind the addresses of sites that are not open yet, and check their certificate, before `open`.

        Raises:
            CertificateError: An HTTPS listener has no usable certificate, or its `client_ca` has none.
            ListenError: An address can't be bound.
        """
        listeners = [each for name in names if name not in self.sites for each in listeners_of(name, self._settings)]
        if any(each.scheme == "https" for each in listeners):
            self._tls()
        for each in listeners:
            client_authorities(each, self._settings)
            self._sockets.bind(each)

    def release_prepared(self) -> None:
        """Release the addresses that `prepare` bound and no site uses."""
        self._sockets.release_unused(self.engines)

    def open(self, site_apps: Mapping[str, SiteApp]) -> tuple[str, ...]:
        """Open the listeners of all sites that are not open yet. Return the names of these sites.

        If it raises, some may be open: `close` them, and `release_prepared`.
        """
        new = tuple(name for name in site_apps if name not in self.sites)
        proxies = self._settings.host.trusted_proxies
        for name in new:
            self.sites[name] = Site(name, site_apps[name].app, proxies, site_apps[name].prefixes)
            self.sites[name].timed = site_apps[name].timed
        if new:
            sys.setswitchinterval(_SWITCH_SECONDS)
            self._file_limit = raise_file_limit()
        listeners = [listener for name in new for listener in listeners_of(name, self._settings)]
        # HTTPS first: redirects from HTTP need its port.
        for listener in sorted(listeners, key=lambda each: each.scheme, reverse=True):
            tls = self._tls() if listener.scheme == "https" else None
            self._client_authorities[listener] = client_authorities(listener, self._settings)
            engine = self._make_engine(listener, site_apps[listener.site].body_limit, tls)
            self.engines[listener] = engine
            if tls is not None:
                tls.require_unchanged()
                self.certificates[listener] = tls
                self.sites[listener.site].secure_port = engine.port
        self.release_prepared()
        return new

    def swap(self, site_apps: Mapping[str, SiteApp]) -> None:
        """Swap the apps of open sites. The next request gets the new one."""
        for listener, engine in self.engines.items():
            if listener.site in site_apps:
                engine.set_body_limit(site_apps[listener.site].body_limit)
        for name, each in site_apps.items():
            self.sites[name].timed = each.timed
            self.sites[name].swap(each.app, each.prefixes)

    def drain(self, grace: float, plugins: Collection[str] | None = None) -> Counter[str]:
        """Wait for the requests in flight in replaced apps. Return how many were cut off, by plugin."""
        deadline = monotonic() + grace
        left: Counter[str] = Counter()
        for site in self.sites.values():
            left += site.drain(max(0.0, deadline - monotonic()), plugins)
            site.cut_off(plugins)
        return left

    def end_streams(self, plugins: Collection[str] | None = None, *, closing: Collection[str] = ()) -> None:
        """End idle streams: those of replaced apps, and all of sites that close."""
        for name, site in self.sites.items():
            site.closing = name in closing
            site.end_streams(plugins, everything=site.closing)

    def close(self, names: Collection[str], grace: float) -> bool:
        """Answer the requests in flight on some sites, and close their listeners. Return whether all were answered."""
        closing = {listener: engine for listener, engine in self.engines.items() if listener.site in names}
        deadline = monotonic() + grace
        for listener in closing:
            self._sockets.release(listener)
        answered = _drain(closing.values(), deadline)
        for listener in closing:
            del self.engines[listener]
            self.certificates.pop(listener, None)
            self._connection_limits.pop(listener, None)
        for name in names:
            self.sites.pop(name, None)
        return answered

    def is_current(self, tls: PreparedTLS) -> bool:
        """Return whether HTTPS listeners show this certificate, and trust the authorities that `client_ca` has now.

        Raises:
            CertificateError: A `client_ca` can't be used.
        """
        return all(
            served.chain == tls.chain
            and self._client_authorities[listener] == client_authorities(listener, self._settings)
            for listener, served in self.certificates.items()
        )

    def replace_certificate(self, tls: PreparedTLS, site_apps: Mapping[str, SiteApp], grace: float) -> None:
        """Use another certificate: a second engine takes over each HTTPS listener's socket, then the first is drained.

        Raises:
            CertificateError: Its files were replaced meanwhile. Nothing has changed.
            ListenError: An engine rejects it. Nothing has changed.
        """
        replaced = {listener: cast("GranianEngine", self.engines[listener]) for listener in self.certificates}
        authorities = {listener: client_authorities(listener, self._settings) for listener in replaced}
        new_engines: dict[Listener, GranianEngine] = {}
        for old in replaced.values():
            old.pause()
        try:
            for listener in replaced:
                engine = self._make_engine(listener, site_apps[listener.site].body_limit, tls)
                new_engines[listener] = cast("GranianEngine", engine)
            tls.require_unchanged()
        except BaseException:
            for new in new_engines.values():
                new.pause()
            for old in replaced.values():
                old.resume()
            for new in new_engines.values():
                new.drain(grace)
            raise
        self.engines.update(new_engines)
        self.certificates.update(dict.fromkeys(new_engines, tls))
        self._client_authorities.update(authorities)
        for listener in replaced:
            self.sites[listener.site].end_streams(everything=True)
        _drain(replaced.values(), monotonic() + grace)

    def _connection_limit(self, listener: Listener) -> int:
        """Return a listener's connection limit: that of the settings, or less if the process may open too few files."""
        limits = self._connection_limits
        if listener in limits:  # of an engine that replaces one
            return limits[listener]
        configured = _site_settings(listener.site, self._settings).connection_limit
        counted = {"main", "library", *self.sites}  # a reload may open the first two; few hosts ever open `admin`
        unopened = {each for name in counted for each in listeners_of(name, self._settings)} - limits.keys()
        limit = connections_per_listener(configured, len(unopened), self._file_limit, sum(limits.values()))
        if limit < configured:
            _LOGGER.warning(
                "%s takes %d connections, and not the %d of sites.%s.connection_limit, since this process may open "
                "%d files: raise that (LimitNOFILE of the unit, ulimit -n), or lower the setting",
                *(listener, limit, configured, listener.site, self._file_limit),
            )
        return limit

    def _make_engine(self, listener: Listener, body_limit: int, tls: PreparedTLS | None) -> Engine:
        site_settings = _site_settings(listener.site, self._settings)
        options = EngineOptions(
            connection_limit=self._connection_limit(listener),
            idle_timeout=site_settings.idle_timeout,
            body_limit=body_limit,
            body_timeout=self._settings.host.requests.body_timeout,
            body_memory=self._settings.host.requests.body_memory,
            tls=tls,
            tls_policy=self._settings.host.tls.policy,
            client_ca=self._settings.path(site_settings.client_ca),
        )
        listening = self._sockets.duplicate(listener)
        engine = open_engine(self.sites[listener.site], listener, listening, options, self.dispatcher)
        self._connection_limits[listener] = options.connection_limit
        return engine


def _drain(engines: Collection[Engine], deadline: float) -> bool:
    """Drain engines at once, or one after the other if the system allows no threads; return whether all answered."""
    unanswered, threads = set(engines), []

    def drain(engine: Engine) -> None:
        if engine.drain(max(0.0, deadline - monotonic())):
            unanswered.remove(engine)

    for engine in engines:
        thread = threading.Thread(target=drain, args=(engine,), name="drain")
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:
            drain(engine)
    for thread in threads:
        thread.join()
    return not unanswered


def exposed_addresses(settings: Settings) -> tuple[str, ...]:
    """Return the addresses of sites that other machines can reach."""
    addresses = dict.fromkeys(
        site_settings.address or settings.host.address for _, site_settings in settings.host.sites
    )
    return tuple(address for address in addresses if not is_loopback(address))


def client_authorities(listener: Listener, settings: Settings) -> bytes:
    """Return the content of a listener's `client_ca`. Empty if it has none, or speaks plain HTTP.

    Raises:
        CertificateError: It can't be read, or has no certificate.
    """
    path = settings.path(_site_settings(listener.site, settings).client_ca)
    if path is None or listener.scheme == "http":
        return b""
    from plughost._tls.keypairs import advice_on, pem_labels, read_chain  # noqa: PLC0415 - brings cryptography

    try:
        content = path.read_bytes()
        if b"CERTIFICATE" not in pem_labels(content):
            raise ssl.SSLError
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
        read_chain(path)
        return content
    except OSError as error:
        reason, advice = error.strerror, f"correct sites.{listener.site}.client_ca"
        if isinstance(error, ssl.SSLError):  # its number is not the system's
            reason = "it must have PEM certificates, on lines of their own and without a byte order mark"
        else:
            advice = advice_on(error, advice)
        raise CertificateError(f"{path}: cannot be used ({reason}); {advice}") from error


def has_https(sites: Iterable[str], settings: Settings) -> bool:
    """Return whether any of these sites has an HTTPS listener in the settings."""
    return any(listener.scheme == "https" for site in sites for listener in listeners_of(site, settings))


def listeners_of(site: str, settings: Settings) -> list[Listener]:
    """Return the listeners of a site, from the settings."""
    site_settings = _site_settings(site, settings)
    address = site_settings.address or settings.host.address
    ports = {"http": site_settings.http_port, "https": site_settings.https_port}
    engines: Mapping[Scheme, EngineName] = {"http": site_settings.http_engine, "https": "granian"}
    return [
        Listener(site=site, scheme=scheme, address=address, port=ports[scheme], engine=engines[scheme])
        for scheme in site_settings.listeners
    ]


def _site_settings(site: str, settings: Settings) -> SiteSettings:
    site_settings: SiteSettings = getattr(settings.host.sites, site)
    return site_settings
