"""CORS: which web pages of other origins may use a site (the Fetch standard, "HTTP-CORS protocol").

Falcon's CORSMiddleware would not do. It answers a preflight after the plugin's own middleware, which would count it
against a rate limit. It sends no `Vary: Origin`, which shared caches need. And it lets a preflight be cached for a day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon

if TYPE_CHECKING:
    from plughost._settings.models import CORSSettings
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


class CORS:
    """The middleware. The outermost but for the log, so that errors carry its headers too."""

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
