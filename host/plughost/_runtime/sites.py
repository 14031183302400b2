"""Serve: the sites of a host, and the engines that listen for them."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from plughost._api.host import Listener
from plughost._apps.edge import is_loopback
from plughost._apps.site import Site
from plughost._runtime.sockets import Sockets
from plughost._servers import Engine, EngineOptions, open_engine
from plughost._servers.connections import connections_per_listener, raise_file_limit
from plughost._servers.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from socket import socket

    from plughost._apps.application import SiteApp
    from plughost._servers.granian import GranianEngine
    from plughost._settings.models import EngineName, Scheme, SiteSettings
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS


_LOGGER: Final = logging.getLogger("plughost._servers")
_SWITCH_SECONDS: Final = 0.0005
"""For how long a thread that comes to leave a request waits for the one that computes; Python's default is 5 ms."""


class Serving:
    """The open sites of a host, their engines, the threads that answer on all of them, and the certificates shown."""

    def __init__(self, settings: Settings, tls: Callable[[], PreparedTLS], sockets: Sockets | None = None) -> None:
        """Serve nothing yet. Ports and engines stay as the settings say here; `tls` returns the certificate."""
        self.sites: dict[str, Site] = {}
        self.engines: dict[Listener, Engine] = {}
        table, sites = settings.host.requests, settings.host.sites
        self.dispatcher: Dispatcher = Dispatcher(
            sites.main.threads + sites.library.threads,
            share=table.plugin_threads,
            queue_limit=table.plugin_queue,
            queue_timeout=table.queue_timeout,
            one_processor=table.one_processor,
        )
        self.shown: dict[Listener, PreparedTLS] = {}
        self._descriptors = sys.maxsize
        self._settings = settings
        self._tls = tls
        self._sockets = sockets if sockets is not None else Sockets()
        self._prepared: dict[Listener, socket] = {}

    def prepare(self, names: Collection[str]) -> None:
        """Take the addresses of sites that are not open yet, and see that there is a certificate, before `open`.

        Raises:
            CertificateError: An HTTPS listener has no certificate to show.
            ListenError: An address can't be had.
        """
        listeners = [each for name in names if name not in self.sites for each in listeners_of(name, self._settings)]
        try:
            if any(each.scheme == "https" for each in listeners):
                self._tls()
            for each in listeners:
                self._prepared[each] = self._sockets.take(each)
        except BaseException:
            self.leave_prepared()
            raise

    def leave_prepared(self) -> None:
        """Give up the addresses that were taken for sites which did not open."""
        while self._prepared:
            listener, taken = self._prepared.popitem()
            self._sockets.release(listener)
            taken.close()

    def open(self, site_apps: Mapping[str, SiteApp]) -> tuple[str, ...]:
        """Open the listeners of every site that is not open yet, all of them or none; return the names of these sites.

        Raises:
            CertificateError: An HTTPS listener has no certificate to show.
            ListenError: A listener can't be opened.
        """
        new = tuple(name for name in site_apps if name not in self.sites)
        proxies = self._settings.host.trusted_proxies
        for name in new:
            self.sites[name] = Site(name, site_apps[name].app, proxies, site_apps[name].prefixes)
            self.sites[name].timed = site_apps[name].timed
        if new:
            sys.setswitchinterval(_SWITCH_SECONDS)
            self._descriptors = raise_file_limit()
        listeners = [listener for name in new for listener in listeners_of(name, self._settings)]
        try:
            # HTTPS first: a plain HTTP request may be redirected to a secure port that must be known by then.
            for listener in sorted(listeners, key=lambda each: each.scheme, reverse=True):
                self._open(listener, site_apps[listener.site].body_limit)
        except BaseException:
            self.close(new, grace=0.0)
            raise
        finally:
            self.leave_prepared()
        return new

    def swap(self, site_apps: Mapping[str, SiteApp]) -> None:
        """Let the open sites serve something else from the next request on."""
        for listener, engine in self.engines.items():
            if listener.site in site_apps:
                engine.set_body_limit(site_apps[listener.site].body_limit)
        for name, each in site_apps.items():
            self.sites[name].timed = each.timed
            self.sites[name].swap(each.app, each.prefixes)

    def drain(self, grace: float, plugins: Collection[str] | None = None) -> Counter[str]:
        """Answer what is in flight in the apps that were swapped out; return how many were cut off, by plugin."""
        until = monotonic() + grace
        left: Counter[str] = Counter()
        for site in self.sites.values():
            left += site.drain(max(0.0, until - monotonic()), plugins)
            site.cut_off(plugins)
        return left

    def end_streams(self, plugins: Collection[str] | None = None, *, closing: Collection[str] = ()) -> None:
        """Let bodies end that have nothing to send: those of what was swapped out, and all of sites that close."""
        for name, site in self.sites.items():
            site.closing = name in closing
            site.end_streams(plugins, everything=site.closing)

    def close(self, names: Collection[str], grace: float) -> bool:
        """Answer what is in flight on some sites, and close their listeners; return whether all was answered."""
        closing = {listener: engine for listener, engine in self.engines.items() if listener.site in names}
        until = monotonic() + grace
        answered = True
        for listener in closing:
            self._sockets.release(listener)
        if closing:
            with ThreadPoolExecutor(len(closing), thread_name_prefix="drain") as pool:
                drained = pool.map(lambda engine: engine.drain(max(0.0, until - monotonic())), closing.values())
                answered = all(list(drained))
        for listener in closing:
            del self.engines[listener]
            self.shown.pop(listener, None)
        for name in names:
            self.sites.pop(name, None)
        return answered

    def renew(self, tls: PreparedTLS, site_apps: Mapping[str, SiteApp], grace: float) -> None:
        """Show another certificate: a second engine takes each HTTPS listener's socket, then the first one is drained.

        Raises:
            CertificateError: Its files were replaced meanwhile. All is as it was before.
            ListenError: An engine doesn't take it. All is as it was before.
        """
        replaced = {listener: cast("GranianEngine", self.engines[listener]) for listener in self.shown}
        clients = {listener: engine.pause() for listener, engine in replaced.items()}
        fresh: dict[Listener, GranianEngine] = {}
        try:
            for listener, others in clients.items():
                engine = cast("GranianEngine", self._engine(listener, site_apps[listener.site].body_limit, tls))
                engine.start(self._sockets.again(listener), foreign_clients=others)
                fresh[listener] = engine
            tls.require_unchanged()
        except BaseException:
            came = {listener: engine.pause() - clients[listener] for listener, engine in fresh.items()}
            for engine in replaced.values():
                engine.resume()
            for listener, engine in fresh.items():
                engine.drain(grace, only=came[listener])
            raise
        self.engines.update(fresh)
        self.shown.update(dict.fromkeys(fresh, tls))
        for listener in replaced:
            self.sites[listener.site].end_streams(everything=True)
        with ThreadPoolExecutor(len(replaced), thread_name_prefix="drain") as pool:
            list(pool.map(lambda listener: replaced[listener].drain(grace, only=clients[listener]), replaced))

    def _connection_limit(self, listener: Listener) -> int:
        """Return how many connections a listener may take, which may be fewer than the setting says."""
        sites = self._settings.host.sites
        wanted = _table(listener.site, self._settings).connection_limit
        listeners = len(sites.main.listeners) + len(sites.library.listeners)
        limit = connections_per_listener(wanted, listeners, self._descriptors)
        if limit < wanted:
            _LOGGER.warning(
                "%s takes %d connections, and not the %d of sites.%s.connection_limit, since this process may open "
                "%d files: raise that (LimitNOFILE of the unit, ulimit -n), or lower the setting",
                *(listener, limit, wanted, listener.site, self._descriptors),
            )
        return limit

    def _engine(self, listener: Listener, body_limit: int, tls: PreparedTLS | None) -> Engine:
        table = _table(listener.site, self._settings)
        options = EngineOptions(
            connection_limit=self._connection_limit(listener),
            idle_timeout=table.idle_timeout,
            body_limit=body_limit,
            body_timeout=self._settings.host.requests.body_timeout,
            body_memory=self._settings.host.requests.body_memory,
            tls_policy=self._settings.host.tls.policy,
            client_ca=self._settings.path(table.client_ca),
        )
        return open_engine(self.sites[listener.site], listener, options, tls, self.dispatcher)

    def _open(self, listener: Listener, body_limit: int) -> None:
        tls = self._tls() if listener.scheme == "https" else None
        engine = self._engine(listener, body_limit, tls)
        try:
            engine.start(self._prepared.pop(listener, None) or self._sockets.take(listener))
        except BaseException:
            self._sockets.release(listener)
            raise
        self.engines[listener] = engine
        if tls is not None:
            tls.require_unchanged()
            self.shown[listener] = tls
            self.sites[listener.site].secure_port = engine.port


def exposed_addresses(settings: Settings) -> tuple[str, ...]:
    """Return the addresses of the sites that others than this machine can reach."""
    addresses = dict.fromkeys(table.address or settings.host.address for _, table in settings.host.sites)
    return tuple(address for address in addresses if not is_loopback(address))


def has_https(sites: Iterable[str], settings: Settings) -> bool:
    """Tell whether the settings give one of some sites an HTTPS listener."""
    return any(listener.scheme == "https" for site in sites for listener in listeners_of(site, settings))


def listeners_of(site: str, settings: Settings) -> list[Listener]:
    """Return the listeners that the settings give a site."""
    table = _table(site, settings)
    address = table.address or settings.host.address
    ports = {"http": table.http_port, "https": table.https_port}
    engines: Mapping[Scheme, EngineName] = {"http": table.http_engine, "https": "granian"}
    return [
        Listener(site=site, scheme=scheme, address=address, port=ports[scheme], engine=engines[scheme])
        for scheme in table.listeners
    ]


def _table(site: str, settings: Settings) -> SiteSettings:
    table: SiteSettings = getattr(settings.host.sites, site)
    return table
