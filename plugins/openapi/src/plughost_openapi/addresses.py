"""The URLs of a host's sites, as a reader of the description or a user of Swagger UI reaches them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import falcon

    from plughost import HostView

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - nothing is bound here  # nosec B104


class Addresses:
    """The addresses of each site of a host."""

    def __init__(self, view: HostView, plugin: str, configured: Mapping[str, Sequence[str]]) -> None:
        """Take the host, this plugin's name, and the URLs by site that replace those of the listeners."""
        self.view = view
        self._plugin = plugin
        self._configured = configured

    @property
    def own_sites(self) -> tuple[str, ...]:
        """The sites of this plugin."""
        return next((tuple(each.sites) for each in self.view.plugins if each.name == self._plugin), ())

    def of(self, site: str, host: str | None = None, scheme: str = "http") -> tuple[str, ...]:
        """Return the addresses of a site, without a slash at the end.

        Args:
            site: The site's name.
            host: The host name to use; by default the address that a listener is bound to.
            scheme: The scheme to put first, because a page may be unable to use the other one.
        """
        if site in self._configured:
            return tuple(url.rstrip("/") for url in self._configured[site])
        listeners = [(each, port) for each, port in self.view.listeners.items() if each.site == site]
        listeners.sort(key=lambda pair: (pair[0].scheme != scheme, pair[0].scheme))
        return tuple(f"{each.scheme}://{host or _bound(each.address)}:{port}" for each, port in listeners)


def host_name(req: falcon.Request) -> str:
    """Return the host name of a request, or `localhost` if it is not a valid one.

    It ends up in URLs and headers, so it must not contain anything else.
    """
    host = urlsplit(req.prefix).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if _HOST.fullmatch(host) else "localhost"


def _bound(address: str) -> str:
    if address in _EVERY_ADDRESS:
        return "localhost"
    return f"[{address}]" if ":" in address else address
