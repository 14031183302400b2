"""What the host itself puts around a site, as the site's settings say: CORS, security headers, compression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon

from plughost._api.declarations import Middleware
from plughost._apps.compression import Compression

if TYPE_CHECKING:
    from plughost._settings.models import CORSSettings, SecurityHeadersSettings, SiteSettings
    from plughost.http._request import Request

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
