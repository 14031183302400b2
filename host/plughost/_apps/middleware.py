"""What the host itself puts around a site, as the site's settings say: CORS, security headers, compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost._api.declarations import Middleware
from plughost._apps.compression import Compression
from plughost._apps.cors import CORS
from plughost._apps.security_headers import SecurityHeaders

if TYPE_CHECKING:
    from plughost._settings.models import SiteSettings


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
