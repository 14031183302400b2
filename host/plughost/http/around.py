"""What the host itself puts around a site, as the site's settings say: CORS, security headers, compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost.http.compression import Compression
from plughost.http.cors import CORS
from plughost.http.security_headers import SecurityHeaders

if TYPE_CHECKING:
    from plughost.settings import SiteSettings


def around_site(settings: SiteSettings) -> list[object]:
    """Return the middleware for a site, outermost first; nothing for what is off, so that it costs nothing."""
    components: list[object] = []
    if settings.security_headers.enabled:
        components.append(SecurityHeaders(settings.security_headers))
    if settings.cors.origins:
        components.append(CORS(settings.cors))
    if settings.compression.encodings:
        components.append(Compression(settings.compression))
    return components
