"""Serve: the sites of a host, and the engines that listen for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING

from plughost.engines import Engine, EngineOptions, Listener, open_engine
from plughost.http.site import Assembly, Site
from plughost.sockets import Sockets

if TYPE_CHECKING:
    from plughost.engines import TLSFiles
    from plughost.generation import SiteAssembly
    from plughost.settings import EngineName, Scheme, Settings, SiteSettings


class Serving:
    """The open sites of a host.

    Attributes:
        sites: The sites, by name.
        engines: The engines, by listener.
    """

    def __init__(self, settings: Settings, tls: Callable[[], TLSFiles], sockets: Sockets | None = None) -> None:
        """Serve nothing yet.

        Args:
            settings: The settings; ports and engines stay as they are here for as long as this serves.
            tls: Returns the certificate; called when the first HTTPS listener opens.
            sockets: Where listening sockets come from; all are opened anew by default.
        """
        self.sites: dict[str, Site] = {}
        self.engines: dict[Listener, Engine] = {}
        self._settings = settings
        self._tls = tls
        self._sockets = sockets if sockets is not None else Sockets()

    def open(self, assemblies: Mapping[str, SiteAssembly]) -> tuple[str, ...]:
        """Open the listeners of every site that is not open yet; all of them, or none.

        Args:
            assemblies: What the sites serve, by name.

        Returns:
            The names of the sites that were opened.

        Raises:
            CertificateError: An HTTPS listener has no certificate to show.
            ListenError: A listener can't be opened.
        """
        new = tuple(name for name in assemblies if name not in self.sites)
        proxies = self._settings.host.trusted_proxies
        self.sites.update((name, Site(name, assemblies[name].app, proxies)) for name in new)
        listeners = [listener for name in new for listener in listeners_of(name, self._settings)]
        try:
            # HTTPS first: a plain HTTP request may be redirected to a secure port that must be known by then.
            for listener in sorted(listeners, key=lambda each: each.scheme, reverse=True):
                self._open(listener, assemblies[listener.site].body_limit)
        except BaseException:
            self.close(new, grace=0.0)
            raise
        return new

    def swap(self, assemblies: Mapping[str, SiteAssembly]) -> list[tuple[Site, Assembly]]:
        """Let the open sites serve something else from the next request on.

        Args:
            assemblies: What they serve then, by name; each of these sites is open.

        Returns:
            Each site and what it served before, which may still be answering.
        """
        for listener, engine in self.engines.items():
            if listener.site in assemblies:
                engine.set_body_limit(assemblies[listener.site].body_limit)
        return [(self.sites[name], self.sites[name].swap(each.app)) for name, each in assemblies.items()]

    def close(self, names: Collection[str], grace: float) -> bool:
        """Answer what is in flight on some sites, and close their listeners.

        Args:
            names: The sites' names.
            grace: Seconds after which what still runs is cut off.

        Returns:
            Whether every request in flight was answered.
        """
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
        for name in names:
            self.sites.pop(name, None)
        return answered

    def _open(self, listener: Listener, body_limit: int) -> None:
        table = _table(listener.site, self._settings)
        options = EngineOptions(
            threads=table.threads,
            connection_limit=table.connection_limit,
            idle_timeout=table.idle_timeout,
            body_limit=body_limit,
        )
        tls = self._tls() if listener.scheme == "https" else None
        engine = open_engine(self.sites[listener.site], listener, options, tls)
        try:
            engine.start(self._sockets.take(listener))
        except BaseException:
            self._sockets.release(listener)
            raise
        self.engines[listener] = engine
        if listener.scheme == "https":
            self.sites[listener.site].secure_port = engine.port


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
