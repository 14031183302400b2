"""The request that resources and middleware of a host see: Falcon's, with what the host knows about it."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import falcon

if TYPE_CHECKING:
    from plughost._api.declarations import Principal
    from plughost._apps.mounted import Mounted

OVERLOADED: Final = "plughost.overloaded"
"""In the environ of a request that no thread is to be held with: what stands for its route group, or None."""

FAILED: Final = "plughost.failed"
"""In the environ of a request that failed where Falcon gives it to no handler, and is answered anew: the error."""

BEGINS: Final = "plughost.begins"
"""In the environ of a request whose response is a stream: what is to be called once that begins, or won't."""

UNCHECKED: Final = "plughost.unchecked_host"
"""In the environ of a request to a site without `allowed_hosts`: anybody can have made up its Host."""

TRUSTED: Final = "plughost.trusted_proxy"
"""In the environ of a request that a trusted proxy sent, with the Host that it passes on."""

_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_acceptable_id = re.compile(r"[A-Za-z0-9._-]{1,128}").fullmatch
_host = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?").fullmatch


@lru_cache(maxsize=256)
def is_host(text: str) -> bool:
    """Tell whether a text is a host name or address, with an optional port (RFC 9110, 7.2)."""
    found = _host(text)
    return found is not None and int(found[1] or 0) <= 65535


@lru_cache(maxsize=256)
def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, of IPv4 also where a dual-stack socket shows it as one of IPv6. None for what is none."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found


class Request(falcon.Request):
    """Falcon's request, with what the host found out on the way to the resource.

    Attributes:
        arrived: When it arrived, of `time.perf_counter()`.
        request_id: What `X-Request-ID` carries, and what its thread logs: the client's own where it is well-formed.
        mounted: The route or group that the path belongs to. None where it belongs to none.
        api_version: The minor version that serves this request, such as `1.0`. None where the group has none.
        principal: Whom the authenticator found, once it was asked.
        origin_allowed: Whether middleware that speaks CORS lets the web page in that sends the request: it sets this in
            its `process_request`. A page of another site can't write otherwise.
        trace_id: What middleware that traces calls the trace of this request, once it has set it: the log and problem
            details name it.
    """

    __slots__ = ("api_version", "arrived", "mounted", "origin_allowed", "principal", "request_id", "trace_id")

    arrived: float
    request_id: str
    mounted: Mounted | None
    api_version: str | None
    principal: Principal | None
    origin_allowed: bool
    trace_id: str | None

    def __init__(self, env: dict[str, Any], options: falcon.RequestOptions | None = None) -> None:
        """Wrap a WSGI environment."""
        self.arrived = perf_counter()
        falcon.Request.__init__(self, env, options)
        self.mounted = None
        self.api_version = None
        self.principal = None
        self.origin_allowed = False
        self.trace_id = None
        if self.method == "WEBSOCKET":
            self.method = "websocket"  # Falcon leaves out the middleware for its own name; like this, it is any other
        given = env.get("HTTP_X_REQUEST_ID")
        # An id for the log is no secret.
        self.request_id = given if given and _acceptable_id(given) else f"{getrandbits(128):032x}"  # nosec B311 - no secret

    @property
    def prefix(self) -> str:
        """What absolute links begin with, such as `https://api.example.org`: never a Host that was not checked.

        A Host is checked where the setting `allowed_hosts` names it, a trusted proxy passes it on, or it is the address
        that the listener is bound to or one of this machine's own. Else this is `localhost`.
        """
        if has_checked_host(self):
            return super().prefix
        port = self.env["SERVER_PORT"]
        place = "localhost" if port == _DEFAULT_PORTS[self.scheme] else f"localhost:{port}"
        return f"{self.scheme}://{place}{self.root_path}"

    @property
    def site(self) -> str:
        """The name of the site that it came to, such as `main`."""
        return str(getattr(self.env.get("plughost.site"), "name", ""))

    @property
    def is_local(self) -> bool:
        """Whether its client is on the host's own machine, and no proxy says that it stands between."""
        environ = self.env
        if "plughost.forwarded" in environ or "HTTP_VIA" in environ:
            return False
        address = address_of(environ.get("REMOTE_ADDR", ""))
        return address is not None and address.is_loopback

    @property
    def may_look(self) -> bool:
        """Whether its client may see how the host is: it came to the site `admin`, or is local."""
        return self.site == "admin" or self.is_local


def has_checked_host(req: falcon.Request) -> bool:
    """Tell whether links may be made from a request's Host: not from one that anybody can have made up."""
    environ = req.env
    if UNCHECKED not in environ or TRUSTED in environ:
        return True
    host = req.host.strip("[]").lower()
    return host == environ["SERVER_NAME"] or _is_own(host)


def _is_own(host: str) -> bool:
    address = address_of(host)
    if address is not None:
        return address.is_loopback
    return host.rpartition(".")[2] == "localhost"  # such as api.localhost (RFC 6761, 6.3)


def secure_url(req: falcon.Request) -> str | None:
    """Return the absolute URL of the same resource over HTTPS, with path and query as they were sent.

    None where the site has no HTTPS listener.
    """
    port = getattr(req.env.get("plughost.site"), "secure_port", None)
    if port is None:
        return None
    host = req.host if has_checked_host(req) else "localhost"
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    target = req.env.get("REQUEST_URI", "")
    if not target.startswith("/"):  # it came in absolute form
        target = req.relative_uri
    return f"https://{host}{target}" if port == 443 else f"https://{host}:{port}{target}"
