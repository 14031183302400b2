"""What the host itself puts around a site, as the site's settings say: CORS, security headers, compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost._api.declarations import Middleware
from plughost._apps.compression import Compression
from plughost._apps.cors import CORS

if TYPE_CHECKING:
    import falcon

    from plughost._settings.models import SecurityHeadersSettings, SiteSettings
    from plughost.http._request import Request


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
