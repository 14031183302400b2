"""CORS: which web pages of other origins may use a site (the Fetch standard, "HTTP-CORS protocol").

Not Falcon's CORSMiddleware: that one answers a preflight only after the plugin's own middleware, which would count it
against a rate limit, sends no `Vary: Origin`, which shared caches need, and lets a preflight be kept for a day.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Self

import falcon
from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from plughost.http.request import Request

_ORIGIN: Final = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")
_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_EXPOSED: Final = (
    "API-Version",
    "ETag",
    "Link",
    "Location",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-ID",
    "X-Total-Count",
)


class CORSSettings(BaseModel):
    """Which web pages of other origins may use the site: none, by default."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    origins: tuple[str, ...] = Field((), description="Origins such as https://app.example.org, or * alone for all")
    credentials: bool = Field(False, description="Let pages of these origins send cookies and HTTP authentication")
    expose: tuple[str, ...] = Field((), description="Response headers that pages may read beside the host's own")
    max_age: int = Field(600, ge=0, le=86400, description="Seconds that a browser may remember a preflight")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.origins == ("*",):
            if self.credentials:
                message = 'credentials = true needs origins by name: with origins = ["*"] any web page could use them'
                raise ValueError(message)
            return self
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                message = (
                    f"{origin!r} is no origin: write scheme, host in lower case and, unless it is the scheme's own,"
                    ' port, such as "https://app.example.org", or "*" alone'
                )
                raise ValueError(message)
        return self


class CORS:
    """The middleware; the outermost but for the log, so that errors carry its headers too."""

    def __init__(self, settings: CORSSettings) -> None:
        """Take which origins are let in."""
        self._all = settings.origins == ("*",)
        self._origins = frozenset(settings.origins)
        self._credentials = settings.credentials
        self._max_age = str(settings.max_age)
        self._exposed = ", ".join(dict.fromkeys((*_EXPOSED, *settings.expose)))

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Answer a preflight of an allowed origin, before anybody asks for the credentials that it never has."""
        environ = req.env
        if (
            req.method != "OPTIONS"
            or "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in environ
            or not self._allows(environ.get("HTTP_ORIGIN"))
        ):
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
        if not self._all:
            resp.append_header("Vary", "Origin")  # without an Origin too: a cache must not hand this answer to a page
        if origin is None or not self._allows(origin):
            return
        resp.set_header("Access-Control-Allow-Origin", "*" if self._all else origin)
        if self._credentials:
            resp.set_header("Access-Control-Allow-Credentials", "true")
        if "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in req.env:
            resp.set_header("Access-Control-Expose-Headers", self._exposed)

    def _allows(self, origin: str | None) -> bool:
        return origin is not None and (self._all or origin in self._origins)
