"""The edge of a site: it refuses hosts and web pages that may not be answered (CONTRACT 2), and closes streams.

The site's settings add CORS, security headers and compression.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost._api.declarations import Middleware
from plughost._apps.compression import Compression
from plughost._logging import REQUEST_ID
from plughost._waiting import Pause
from plughost.http._environ import CUT_OFF, FAILED, REFUSED, UNCHECKED
from plughost.http._request import (
    DEFAULT_PORTS,
    address_of,
    has_checked_host,
    host_name,
)
from plughost.http._response import (
    CLIENT_CACHE_SIZE,
    WrappedStream,
    bounded_parts,
    check_part,
    close_stream,
    stream_parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plughost._settings.models import CORSSettings, SecurityHeadersSettings, SiteSettings
    from plughost.http._request import Request

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110, 9.2.1)."""

_RETRY_SECONDS: Final = 1
_MAX_BACKSLASHES: Final = 500  # for each, Python up to 3.11.9 and 3.12.5 searches the rest of a quoted cookie
_BODILESS_STATUSES: Final = frozenset({100, 101, 204, 304})
_OF_THE_BODY: Final = (
    "Accept-Ranges",
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-Location",
    "Content-Range",
    "ETag",
    "Expires",
    "Last-Modified",
    "Location",
)
_CORS_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED_HEADERS: Final = (
    "API-Version, ETag, Link, Location, RateLimit, RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, "
    "RateLimit-Reset, Retry-After, WWW-Authenticate, X-Request-ID, X-Total-Count"
)


class HostRefused(falcon.HTTPBadRequest):
    """The site's `allowed_hosts` doesn't name the request's Host, as after DNS rebinding by a web page."""


class Edge:
    """The outermost middleware of a site: it sees requests first and responses last."""

    def __init__(self, find: Callable[[str, Request], Any], allowed_hosts: Sequence[str]) -> None:
        self._find = find
        self._is_allowed = _host_matcher(allowed_hosts) if allowed_hosts else host_name
        self._checks_host = bool(allowed_hosts)

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Refuse requests that overload the host, and Hosts that are malformed (RFC 9112, 3.2) or not this site's.

        Also cookies that may take long to parse.
        """
        REQUEST_ID.set(req.request_id)
        environ = req.env
        if REFUSED in environ:
            req.mounted = environ[REFUSED]  # to format the error as its plugin does
            if FAILED in environ:
                raise environ[FAILED]
            raise falcon.HTTPServiceUnavailable(
                title="Overloaded",
                description="The service has too many slow requests at the moment.",
                retry_after=_RETRY_SECONDS,
            )
        if not self._checks_host:
            environ[UNCHECKED] = True
        if environ.get("HTTP_COOKIE", "").count("\\") > _MAX_BACKSLASHES:
            self._find(req.path, req)
            raise falcon.HTTPBadRequest(description=f"The Cookie has more than {_MAX_BACKSLASHES} backslashes.")
        host = environ.get("HTTP_HOST")
        if host is None or self._is_allowed(host):
            return
        if host.endswith(":") and self._is_allowed(host[:-1]):
            environ["HTTP_HOST"] = host[:-1]  # an empty port is the scheme's own (RFC 3986, 3.2.3), but none for Falcon
            return
        self._find(req.path, req)
        if host_name(host):
            raise HostRefused(description="The Host header names a host that this site does not serve.")
        raise falcon.HTTPBadRequest(description="The Host header is no host name or address with an optional port.")

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Close the stream of a response without a body, and limit other streams to their Content-Length."""
        stream = resp.stream
        if stream is None:
            return
        req.env["HTTP_X_REQUEST_ID"] = req.request_id  # for the engine, in case the stream fails
        if _has_body(req, resp):
            if length := resp.get_header("Content-Length"):
                resp.stream = WrappedStream(stream, bounded_parts(stream, int(length)))
        else:
            # Without a stream, Falcon sets Content-Length to 0. An empty stream leaves it as it is.
            resp.stream = () if req.method == "HEAD" else None
            close_stream(stream)


class StreamStart:
    """The innermost middleware of a site: the first part of a stream is there before other middleware sees it.

    So if that fails, the response is an error like any other.
    """

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        stream = resp.stream
        if stream is None or not _has_body(req, resp) or resp.render_body() is not None:
            return
        length = resp.get_header("Content-Length")
        if type(stream) is list and not length:
            return
        try:
            parts = iter(bounded_parts(stream, int(length)) if length else stream_parts(stream))
            first = b""
            for first in parts:
                check_part(first)
                if first or type(first) is Pause:
                    break
                if req.env.get(CUT_OFF):
                    raise falcon.HTTPServiceUnavailable(
                        description="The service was replaced before it responded.", retry_after=_RETRY_SECONDS
                    )
        except BaseException:
            resp.stream = None
            for name in _OF_THE_BODY:
                resp.delete_header(name)
            with suppress(Exception):  # the response is an error already
                close_stream(stream)
            raise
        resp.stream = WrappedStream(stream, chain((first,), parts))


def _has_body(req: Request, resp: falcon.Response) -> bool:
    return req.method != "HEAD" and resp.status_code not in _BODILESS_STATUSES


def site_middleware(settings: SiteSettings) -> list[Middleware]:
    """Return the middleware for a site, outermost first. A feature that is off adds none and costs nothing."""
    middleware: list[Middleware] = []
    if settings.security_headers.enabled:
        middleware.append(Middleware(name="security-headers", component=SecurityHeaders(settings.security_headers)))
    if settings.cors.origins:
        # Even without an Origin: a cache must not give a page the response to a request that has none.
        vary = () if settings.cors.origins == ("*",) else ("Origin",)
        middleware.append(Middleware(name="cors", component=CORS(settings.cors), vary=vary))
    if settings.compression.encodings:
        middleware.append(Middleware(name="compression", component=Compression(settings.compression)))
    return middleware


class SecurityHeaders:
    """Adds the headers that restrict what browsers do with the pages and data of a site."""

    def __init__(self, settings: SecurityHeadersSettings) -> None:
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
        present = resp.headers
        for name, value in self._headers:
            if name.lower() not in present:
                resp.set_header(name, value)
        # Browsers ignore it over plain HTTP (RFC 6797, 7.2).
        if self._hsts is not None and req.scheme == "https" and "strict-transport-security" not in present:
            resp.set_header("Strict-Transport-Security", self._hsts)


class CORS:
    """Tells browsers which web pages of other origins may use a site (the Fetch standard, "HTTP-CORS protocol").

    Only the logs and the security headers run outside it, so that errors have its headers too.

    Falcon's CORSMiddleware does not fit: it answers preflights after the plugin's own middleware, which would count
    them against a rate limit; it sends no `Vary: Origin`, which shared caches need; and it lets preflights be cached
    for a day.
    """

    def __init__(self, settings: CORSSettings) -> None:
        self._allows_all = settings.origins == ("*",)
        self._origins = frozenset(settings.origins)
        self._credentials = settings.credentials
        self._max_age = str(settings.max_age)
        self._exposed = ", ".join(dict.fromkeys((*_EXPOSED_HEADERS.split(", "), *settings.expose)))

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Answer a preflight of an allowed origin before authentication, since preflights have no credentials."""
        environ = req.env
        req.origin_allowed = allowed = self._allows(environ.get("HTTP_ORIGIN"))
        if not allowed or req.method != "OPTIONS" or "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in environ:
            return
        resp.status = falcon.HTTP_204
        resp.set_header("Access-Control-Allow-Methods", _CORS_METHODS)
        resp.set_header("Access-Control-Max-Age", self._max_age)
        requested = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS")
        if requested:
            resp.set_header("Access-Control-Allow-Headers", requested)
            resp.append_header("Vary", "Access-Control-Request-Headers")
        resp.complete = True

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Tell the browser that the page may read the response, if its origin is allowed."""
        origin = req.env.get("HTTP_ORIGIN")
        if origin is None or not self._allows(origin):
            return
        resp.set_header("Access-Control-Allow-Origin", "*" if self._allows_all else origin)
        if self._credentials:
            resp.set_header("Access-Control-Allow-Credentials", "true")
        if "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in req.env:
            resp.set_header("Access-Control-Expose-Headers", self._exposed)

    def _allows(self, origin: str | None) -> bool:
        return origin is not None and (self._allows_all or origin in self._origins)


def refuse_cross_site(req: Request) -> None:
    """Refuse a write that a browser sends for a web page of another site, unless CORS allows the page.

    A body without a Content-Type counts as JSON, so a page of another site could send one with the browser's
    credentials. Browsers name a request's origin in `Sec-Fetch-Site` or `Origin`. Other clients send neither.

    After DNS rebinding, a page of another site looks like one of this host. So if Hosts are not checked, only pages
    whose host is an IP address or this machine's own name may write: those can't be rebound.

    Raises:
        falcon.HTTPForbidden: The page belongs to another site, or could.
    """
    environ = req.env
    relation = environ.get("HTTP_SEC_FETCH_SITE")
    origin = environ.get("HTTP_ORIGIN")
    if (relation is None and origin is None) or relation == "none" or req.origin_allowed:
        return
    if relation != "same-origin" and (
        relation == "cross-site" or not _is_own_origin(origin, environ.get("HTTP_HOST", ""))
    ):
        raise falcon.HTTPForbidden(
            description="Web pages of other sites may not write here, unless the setting cors.origins allows them."
        )
    if not has_checked_host(req) and address_of(req.host.strip("[]")) is None:
        raise falcon.HTTPForbidden(
            description="Web pages may write here only if the setting allowed_hosts names their host."
        )


def _is_own_origin(origin: str | None, host: str) -> bool:
    """Return whether an Origin names the request's host. Schemes may differ, since a proxy may terminate TLS."""
    scheme, _, authority = (origin or "").lower().partition("://")
    return authority != "" and authority == host.lower().removesuffix(f":{DEFAULT_PORTS.get(scheme, '')}")


def _host_matcher(allowed: Sequence[str]) -> Callable[[str], object]:
    names = {each.lower().strip("[]") for each in allowed}
    suffixes = tuple(name[1:] for name in names if name.startswith("*."))

    @lru_cache(maxsize=CLIENT_CACHE_SIZE)
    def matches(host: str) -> bool:
        name = host_name(host)
        bare = name.rstrip(".")
        return name != "" and (bare in names or "*" in names or bare.endswith(suffixes))

    return matches
