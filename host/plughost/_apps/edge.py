"""The edge of a site: which hosts and web pages may be answered at all (CONTRACT 2), and what is left to close.

As the site's settings say, the host puts CORS, security headers and compression around it, too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost._api.declarations import Middleware
from plughost._apps.compression import Compression
from plughost._apps.streams import Bounded, close_stream
from plughost._logging import this_thread
from plughost.http._request import BEGINS, FAILED, OVERLOADED, UNCHECKED, address_of, has_checked_host, is_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plughost._settings.models import CORSSettings, SecurityHeadersSettings, SiteSettings
    from plughost.http._request import Request

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110, 9.2.1)."""

_RETRY_SECONDS: Final = 1
_BODILESS: Final = frozenset({100, 101, 204, 304})
_PORT: Final = re.compile(r":[0-9]+$")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED: Final = (
    "API-Version",
    "ETag",
    "Link",
    "Location",
    "RateLimit",
    "RateLimit-Limit",
    "RateLimit-Policy",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-ID",
    "X-Total-Count",
)


class HostRefused(falcon.HTTPBadRequest):
    """A Host that the site's `allowed_hosts` doesn't name, such as that of a web page whose name was rebound."""


class Edge:
    """The outermost middleware of a site: it sees a request first, and its response last."""

    def __init__(self, find: Callable[[str, Request], Any], allowed_hosts: Sequence[str]) -> None:
        self._find = find
        self._is_allowed = _matcher(allowed_hosts) if allowed_hosts else is_host
        self._checks = bool(allowed_hosts)

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Refuse what no thread is to be held with, and a Host that is malformed (RFC 9112, 3.2) or not this site's."""
        this_thread.request_id = req.request_id
        environ = req.env
        if OVERLOADED in environ:
            req.mounted = environ[OVERLOADED]  # for the error format of its plugin
            if FAILED in environ:
                raise environ[FAILED]
            raise falcon.HTTPServiceUnavailable(
                title="Overloaded",
                description="The service has too many slow requests at the moment.",
                retry_after=_RETRY_SECONDS,
            )
        if not self._checks:
            environ[UNCHECKED] = True
        host = environ.get("HTTP_HOST")
        if host is None or self._is_allowed(host):
            return
        self._find(req.path, req)
        if is_host(host):
            raise HostRefused(description="The Host header names no host that this site is reached by.")
        raise falcon.HTTPBadRequest(description="The Host header is no host name or address with an optional port.")

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Close a stream that won't be sent, since the response has no body, and cut one to its Content-Length."""
        this_thread.request_id = None
        stream = resp.stream
        if stream is None:
            return
        environ = req.env
        environ["HTTP_X_REQUEST_ID"] = req.request_id  # for the log, where the stream fails
        if req.method == "HEAD" or resp.status_code in _BODILESS:
            if BEGINS in environ:
                environ[BEGINS]()
            # Falcon says the length 0 of no stream, and leaves the Content-Length to an empty one.
            resp.stream = () if req.method == "HEAD" else None
            close_stream(stream)
        elif length := resp.get_header("Content-Length"):
            resp.stream = Bounded(stream, int(length))


def site_middleware(settings: SiteSettings) -> list[Middleware]:
    """Return the middleware for a site, outermost first. What is off adds none, so it costs nothing."""
    found: list[Middleware] = []
    if settings.security_headers.enabled:
        found.append(Middleware(name="security-headers", component=SecurityHeaders(settings.security_headers)))
    if settings.cors.origins:
        # By Origin whether or not there is one: a cache must not hand a page what was answered to somebody else.
        vary = () if settings.cors.origins == ("*",) else ("Origin",)
        found.append(Middleware(name="cors", component=CORS(settings.cors), vary=vary))
    if settings.compression.encodings:
        found.append(Middleware(name="compression", component=Compression(settings.compression)))
    return found


class SecurityHeaders:
    """What browsers refuse on the pages and data of a site."""

    def __init__(self, settings: SecurityHeadersSettings) -> None:
        """Work out the headers, which are the same for every response."""
        headers = {
            "X-Frame-Options": settings.frame_options,
            "Content-Security-Policy": settings.content_security_policy,
            "Referrer-Policy": settings.referrer_policy,
            "Permissions-Policy": settings.permissions_policy,
            "Cross-Origin-Opener-Policy": settings.cross_origin_opener_policy,
            "Cross-Origin-Resource-Policy": settings.cross_origin_resource_policy,
        }
        self._headers = tuple((name, value) for name, value in headers.items() if value)
        self._hsts = f"max-age={settings.hsts}" if settings.hsts else None

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Add those that the response doesn't have yet."""
        present = resp.headers
        for name, value in self._headers:
            if name.lower() not in present:
                resp.set_header(name, value)
        if self._hsts is not None and req.scheme == "https":  # browsers ignore it over plain HTTP (RFC 6797, 7.2)
            resp.set_header("Strict-Transport-Security", self._hsts)


class CORS:
    """Says which web pages of other origins may use a site (the Fetch standard, "HTTP-CORS protocol").

    It is the outermost but for the log and the security headers, so that errors carry its headers too.

    Falcon's CORSMiddleware would not do. It answers a preflight after the plugin's own middleware, which would count it
    against a rate limit. It sends no `Vary: Origin`, which shared caches need. And it lets a preflight be cached for a
    day.
    """

    def __init__(self, settings: CORSSettings) -> None:
        self._all = settings.origins == ("*",)
        self._origins = frozenset(settings.origins)
        self._credentials = settings.credentials
        self._max_age = str(settings.max_age)
        self._exposed = ", ".join(dict.fromkeys((*_EXPOSED, *settings.expose)))

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Answer a preflight of an allowed origin, before anybody asks for the credentials that it never has."""
        environ = req.env
        req.origin_allowed = allowed = self._allows(environ.get("HTTP_ORIGIN"))
        if not allowed or req.method != "OPTIONS" or "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in environ:
            return
        resp.status = falcon.HTTP_204
        resp.set_header("Access-Control-Allow-Methods", _METHODS)
        resp.set_header("Access-Control-Max-Age", self._max_age)
        asked = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS")
        if asked:
            resp.set_header("Access-Control-Allow-Headers", asked)
            resp.append_header("Vary", "Access-Control-Request-Headers")
        resp.complete = True

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Tell the browser whether the page may read the response."""
        origin = req.env.get("HTTP_ORIGIN")
        if origin is None or not self._allows(origin):
            return
        resp.set_header("Access-Control-Allow-Origin", "*" if self._all else origin)
        if self._credentials:
            resp.set_header("Access-Control-Allow-Credentials", "true")
        if "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in req.env:
            resp.set_header("Access-Control-Expose-Headers", self._exposed)

    def _allows(self, origin: str | None) -> bool:
        return origin is not None and (self._all or origin in self._origins)


def refuse_cross_site(req: Request) -> None:
    """Refuse a write that a browser sends for a web page of another site, which CORS doesn't let in.

    A body without a Content-Type counts as JSON, so a page of another site could send one with the browser's
    credentials. Browsers name a request's origin in `Sec-Fetch-Site` or `Origin`. Other clients send neither.

    A page whose name was rebound to this host looks like one of its own. So where Hosts are not checked, only pages of
    an address or of this machine may write: these can't be rebound.

    Raises:
        falcon.HTTPForbidden: The page is of another site, or may be.
    """
    environ = req.env
    relation = environ.get("HTTP_SEC_FETCH_SITE")
    origin = environ.get("HTTP_ORIGIN")
    if (relation is None and origin is None) or relation == "none" or req.origin_allowed:
        return
    if relation != "same-origin" and (relation == "cross-site" or not _is_own(origin, environ.get("HTTP_HOST", ""))):
        raise falcon.HTTPForbidden(
            description="Web pages of other sites may not write here; the setting cors.origins lets them in."
        )
    if not has_checked_host(req) and address_of(req.host.strip("[]")) is None:
        raise falcon.HTTPForbidden(
            description="Web pages may write here once the setting allowed_hosts names the host that they are of."
        )


def is_loopback(address: str) -> bool:
    """Tell whether an address that a listener binds is reached from this machine only."""
    found = address_of(address)
    return found.is_loopback if found is not None else address.startswith(("localhost", "unix:"))


def _is_own(origin: str | None, host: str) -> bool:
    """Whether an Origin names the host that the request came to. Whatever the scheme is, for a proxy may end TLS."""
    scheme, _, authority = (origin or "").lower().partition("://")
    return authority != "" and authority == host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ":"))


def _matcher(allowed: Sequence[str]) -> Callable[[str], bool]:
    names = {each.lower().strip("[]") for each in allowed}
    endings = tuple(name[1:] for name in names if name.startswith("*."))

    @lru_cache(maxsize=256)
    def matches(host: str) -> bool:
        if not is_host(host):
            return False
        name = _PORT.sub("", host).strip("[]").rstrip(".").lower()
        return name in names or "*" in names or name.endswith(endings)

    return matches
