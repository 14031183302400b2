"""The resources `/q/openapi` and `/q/swagger-ui`."""

from __future__ import annotations

import hashlib
import html
import mimetypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from string import Template
from typing import TYPE_CHECKING, Final

import falcon

from plughost.http import preferred
from plughost_openapi.addresses import Addresses, host_name
from plughost_openapi.document import Format, describe

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from plughost import HostView
    from plughost.http import Request
    from plughost_openapi.settings import About

YAML: Final = ("application/yaml", "application/vnd.oai.openapi")
JSON: Final = ("application/json", "application/vnd.oai.openapi+json")
OFFERS: Final = (*YAML, *JSON)
PAGE: Final = "index.html"
_CONSOLE: Final = "/q/dev"  # CONTRACT 8

_INSERTED_STYLE: Final = "'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='"
"""The hash of the only style sheet that Swagger UI 5.35.0 inserts; after an update, browsers report the new one."""

_CACHED_DESCRIPTIONS: Final = 16
"""Cache size for descriptions: of a few sites, in two formats, under a few host names."""


@dataclass(frozen=True, slots=True)
class _Body:
    """A response body and its ETag."""

    data: bytes
    etag: str

    @classmethod
    def of(cls, data: bytes) -> _Body:
        return cls(data, hashlib.sha256(data).hexdigest()[:32])

    def send(self, req: Request, resp: falcon.Response, content_type: str) -> None:
        """Send the body, or 304 if the client has it (RFC 9110, 13.1.2)."""
        resp.etag = self.etag
        resp.set_header("Cache-Control", "no-cache")
        resp.append_header("Vary", "Accept")
        if any(each in ("*", self.etag) for each in req.if_none_match or ()):
            resp.status = falcon.HTTP_304
            return
        resp.content_type = content_type
        resp.data = self.data


class Description:
    """The description of a site."""

    def __init__(self, view: HostView, addresses: Addresses, own_site: Callable[[], str], about: About) -> None:
        """Take the host to describe.

        Args:
            view: The host.
            addresses: The URLs of its sites.
            own_site: Returns the default site.
            about: The settings for the Info Object.
        """
        self._about = about
        self._view = view
        self._addresses = addresses
        self._own_site = own_site
        self._rendered = lru_cache(maxsize=_CACHED_DESCRIPTIONS)(self._render)

    def on_get(self, req: Request, resp: falcon.Response, site: str | None, format: Format | None) -> None:  # noqa: A002 - the parameter's name
        """Return the description."""
        site = site or self._own_site()
        if site not in self._view.sites:
            sites = ", ".join(self._view.sites)
            raise falcon.HTTPNotFound(description=f"site: nothing is mounted on such a site; there are: {sites}.")
        content_type = _content_type(req, format)
        as_format: Format = "json" if content_type in JSON else "yaml"
        servers = self._addresses.of(site, host_name(req), req.scheme)
        self._rendered(self._view.generation, site, servers, as_format).send(req, resp, content_type)

    def _render(self, generation: int, site: str, servers: tuple[str, ...], as_format: Format) -> _Body:
        from plughost_openapi.rendering import render  # noqa: PLC0415 - brings yaml, which few commands use

        return _Body.of(render(describe(self._view, site, servers, self._about), as_format).encode())


def _content_type(req: Request, asked: Format | None) -> str:
    """Return the requested media type, by `?format=` or else by `Accept`."""
    if asked is None:
        return preferred(req, OFFERS)
    offers = YAML if asked == "yaml" else JSON
    try:
        return preferred(req, offers)
    except falcon.HTTPNotAcceptable:
        return offers[0]  # `?format=` overrides the header


class SwaggerUI:
    """The page of Swagger UI."""

    def __init__(self, files: Traversable, view: HostView, addresses: Addresses, own_site: Callable[[], str]) -> None:
        """Take the folder of its files, and the host; see `Description`."""
        self._view = view
        self._addresses = addresses
        self._own_site = own_site
        self._template = Template((files / PAGE).read_text(encoding="utf-8"))

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the page."""
        own = self._own_site()
        sites = [own, *(site for site in self._view.sites if site != own)]
        here = self._view.sites.get(req.site)
        has_console = here is not None and any(group.prefix == _CONSOLE for _, group in here.groups)
        back = f'<p class="back"><a href="{_CONSOLE}/routes">Back to the console</a></p>\n' if has_console else ""
        page = self._template.substitute(sites=html.escape(" ".join(sites)), back=back)
        resp.set_header("Content-Security-Policy", self._policy(host_name(req)))
        resp.set_header("Referrer-Policy", "no-referrer")
        _Body.of(page.encode()).send(req, resp, "text/html; charset=utf-8")

    def _policy(self, host: str) -> str:
        """Return a policy by which the page loads files only from here and calls only the host's listeners."""
        policy = {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": f"'self' {_INSERTED_STYLE}",
            "img-src": "'self' data:",
            "connect-src": " ".join(("'self'", *self._addresses.all(host))),
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        return "; ".join(f"{name} {value}" for name, value in policy.items())


class Assets:
    """The files that the page loads."""

    def __init__(self, files: Traversable) -> None:
        """Take the folder; only its files are served."""
        self._files = {each.name: each for each in files.iterdir() if each.is_file() and each.name != PAGE}
        self._body = lru_cache(maxsize=None)(self._read)

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return sorted(self._files)

    def on_get(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Send a file."""
        self._body(name).send(req, resp, _media_type(name))

    def _read(self, name: str) -> _Body:
        return _Body.of(self._files[name].read_bytes())


def _media_type(name: str) -> str:
    known = {".js": "text/javascript", ".css": "text/css", ".png": "image/png", "": "text/plain", ".txt": "text/plain"}
    kind = known.get(name[name.rfind(".") :] if "." in name else "") or mimetypes.guess_type(name)[0] or "text/plain"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
