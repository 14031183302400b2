"""Falcon's request for resources and middleware, with what the host knows about it."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost.http._environ import FORWARDED, SITE, TRUSTED, UNCHECKED
from plughost.http._response import CLIENT_CACHE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from plughost._api.declarations import Principal
    from plughost._apps.mounted import MountedRoute

DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
acceptable_id = re.compile(r"[A-Za-z0-9._-]{1,128}").fullmatch
_host = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._~-]{1,255}))(?::([0-9]{1,5}))?").fullmatch


@lru_cache(maxsize=CLIENT_CACHE_SIZE)
def host_name(text: str) -> str:
    """Return the lower-case name or address in a host with an optional port (RFC 9110, 7.2). Empty if malformed."""
    match = _host(text)
    if match is None or int(match[3] or 0) > 65535:
        return ""
    if match[1] and (":" not in match[1] or address_of(match[1]) is None):
        return ""
    return (match[1] or match[2]).lower()


@lru_cache(maxsize=256)
def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """Return a text's IP address, as IPv4 if a dual-stack socket shows it IPv4-mapped. None if it is no address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


class Request(falcon.Request):
    """Falcon's request, with what the host knows before the resource is called.

    Attributes:
        arrived: When it arrived, by `time.perf_counter()`.
        request_id: The id in `X-Request-ID` and in the log lines of its context: the client's own if it is well-formed.
        mounted: The route or group of the path. None if there is none.
        api_version: The minor version that serves this request, such as `1.0`. None if the group has none.
        principal: The principal that the authenticator found, once it was called.
        origin_allowed: Whether CORS middleware admits the web page that sends the request; it sets this in its
            `process_request`. Otherwise a page of another site can't write.
        trace_id: The id of the request's trace, once tracing middleware has set it. It is in the log and in problem
            details.
    """

    __slots__ = ("api_version", "arrived", "mounted", "origin_allowed", "principal", "request_id", "trace_id")

    arrived: float
    request_id: str
    mounted: MountedRoute | None
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
            self.method = "websocket"  # Falcon skips middleware for its pseudo-method; in lower case it is a normal one
        sent_id = env.get("HTTP_X_REQUEST_ID")
        self.request_id = sent_id if sent_id and acceptable_id(sent_id) else f"{getrandbits(128):032x}"  # nosec B311 - no secret

    @property
    def prefix(self) -> str:
        """The start of absolute links, such as `https://api.example.org`: never an unchecked Host.

        A Host is checked if the setting `allowed_hosts` names it, a trusted proxy passes it on, or it is the listener's
        address or a loopback address. Otherwise this is `localhost`.
        """
        if has_checked_host(self):
            return super().prefix
        port = self.env["SERVER_PORT"]
        place = "localhost" if port == DEFAULT_PORTS[self.scheme] else f"localhost:{port}"
        return f"{self.scheme}://{place}{self.root_path}"

    @property
    def site(self) -> str:
        """The name of the site that received it, such as `main`."""
        return str(getattr(self.env.get(SITE), "name", ""))

    @property
    def is_local(self) -> bool:
        """Whether its client is on the host's own machine, and no proxy has announced itself."""
        environ = self.env
        if FORWARDED in environ or "HTTP_VIA" in environ:
            return False
        address = address_of(environ.get("REMOTE_ADDR", ""))
        return address is not None and address.is_loopback

    @property
    def may_look(self) -> bool:
        """Whether its client may see the host's state: the request came to the site `admin`, or is local."""
        return self.site == "admin" or self.is_local


def principal_of(req: Request, authenticator: Callable[[Request], Principal | None] | None) -> Principal | None:
    """Return the principal that `PluginContext.authenticator` finds, and cache it as `req.principal`.

    None if the request has no credentials, or if no installed plugin is an authenticator.

    Raises:
        falcon.HTTPUnauthorized: The credentials are invalid.
        falcon.HTTPForbidden: Credentials must not be sent this way, such as over plain HTTP.
    """
    if req.principal is None and authenticator is not None:
        req.principal = authenticator(req)
    return req.principal


def has_checked_host(req: falcon.Request) -> bool:
    """Return whether links may be made from a request's Host: clients can forge an unchecked one."""
    environ = req.env
    if UNCHECKED not in environ or TRUSTED in environ:
        return True
    host = req.host.strip("[]").lower()
    return host == environ["SERVER_NAME"] or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether a host, or the address of a listener, can only be reached from this machine."""
    address = address_of(host)
    if address is not None:
        return address.is_loopback
    return host.rpartition(".")[2] == "localhost" or host.startswith("unix:")  # such as api.localhost (RFC 6761, 6.3)


def secure_url(req: falcon.Request) -> str | None:
    """Return the absolute URL of the same resource over HTTPS, with path and query as they were sent.

    None if the site has no HTTPS listener.
    """
    port = getattr(req.env.get(SITE), "secure_port", None)
    if port is None:
        return None
    host = req.host if has_checked_host(req) else "localhost"
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    target = req.env.get("REQUEST_URI") or req.relative_uri
    return f"https://{host}{target}" if port == 443 else f"https://{host}:{port}{target}"
