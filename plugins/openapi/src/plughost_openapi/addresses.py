"""Where the sites of a host are reached, as whoever reads a description or opens Swagger UI sees them."""

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
    """The addresses of each site."""

    def __init__(self, view: HostView, configured: Mapping[str, Sequence[str]]) -> None:
        """Take what tells them.

        Args:
            view: The host, with its listeners.
            configured: Addresses by site that the settings give instead.
        """
        self._view = view
        self._configured = configured

    def of(self, site: str, host: str | None = None, scheme: str = "http") -> tuple[str, ...]:
        """Return the addresses of a site, without a slash at the end.

        Args:
            site: The site's name.
            host: The name that the host is called by; by default what the listeners are bound to.
            scheme: The scheme to put first: a page that came over one can't always use the other.
        """
        if site in self._configured:
            return tuple(url.rstrip("/") for url in self._configured[site])
        listeners = [(each, port) for each, port in self._view.listeners.items() if each.site == site]
        listeners.sort(key=lambda pair: (pair[0].scheme != scheme, pair[0].scheme))
        return tuple(f"{each.scheme}://{host or _bound(each.address)}:{port}" for each, port in listeners)

    def all(self, host: str) -> tuple[str, ...]:
        """Return the addresses of every site, the host called by a name."""
        return tuple(url for site in self._view.sites for url in self.of(site, host))


def host_of(req: falcon.Request) -> str:
    """Return the name that a request calls the host by, `localhost` where that is no name, or was not checked.

    It ends up in addresses and headers, so nothing else may get through.
    """
    host = urlsplit(req.prefix).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if _HOST.fullmatch(host) else "localhost"


def _bound(address: str) -> str:
    if address in _EVERY_ADDRESS:
        return "localhost"
    return f"[{address}]" if ":" in address else address
