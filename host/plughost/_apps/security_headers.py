"""Security headers: what browsers refuse on the pages and data of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import falcon

    from plughost._settings.models import SecurityHeadersSettings
    from plughost.http._request import Request


class SecurityHeaders:
    """The middleware."""

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
