"""The resources `/q/openapi` and `/q/swagger-ui`."""

from __future__ import annotations

import hashlib
import html
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

import falcon

from plughost.http import preferred, send_file
from plughost_openapi.addresses import Addresses, host_name
from plughost_openapi.document import describe

if TYPE_CHECKING:
    from plughost.http import Request
    from plughost_openapi.document import Format
    from plughost_openapi.settings import About

YAML: Final = ("application/yaml", "application/vnd.oai.openapi")
JSON: Final = ("application/json", "application/vnd.oai.openapi+json")
OFFERS: Final = (*YAML, *JSON)
FOLDER: Final = Path(__file__).parent / "swagger_ui"
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".png": "image/png"}
_CONSOLE: Final = "/q/dev"  # CONTRACT 8

_INSERTED_STYLE: Final = "'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='"
"""The hash of the only style sheet that Swagger UI 5.35.0 inserts; after an update, browsers report the new one."""

_CACHED_DESCRIPTIONS: Final = 16
"""Cache size for descriptions: of a few sites, in two formats, before and after a reload."""

_NO_SERVERS: Final[dict[Format, str]] = {"yaml": "\nservers: []\n", "json": '\n  "servers": [],\n'}
"""How a description without servers says so; its other lines are indented differently."""


class Description:
    """The description of a site."""

    def __init__(self, addresses: Addresses, about: About) -> None:
        self._addresses = addresses
        self._about = about
        self._rendered = lru_cache(maxsize=_CACHED_DESCRIPTIONS)(self._render)

    def on_get(self, req: Request, resp: falcon.Response, site: str | None, format: Format | None) -> None:  # noqa: A002 - the parameter's name
        """Return the description."""
        view = self._addresses.view
        site = site or self._addresses.own_sites[0]
        if site not in view.sites:
            sites = ", ".join(view.sites)
            raise falcon.HTTPNotFound(description=f"site: nothing is mounted on such a site; there are: {sites}.")
        content_type = _content_type(req, format)
        as_format: Format = "json" if content_type in JSON else "yaml"
        servers = self._addresses.of(site, host_name(req), req.scheme)
        from plughost_openapi.rendering import render  # noqa: PLC0415 - brings yaml, which few commands use

        # Rendering all takes a second, and clients choose the host name: so only the servers are rendered each time.
        text = self._rendered(view.generation, site, as_format)
        own = render({"servers": [{"url": url} for url in servers]}, as_format)
        own = f"\n{own}" if as_format == "yaml" else f"{own[1:-3]},\n"  # without the braces
        _send(req, resp, text.replace(_NO_SERVERS[as_format], own, 1).encode(), content_type)

    def _render(self, generation: int, site: str, as_format: Format) -> str:
        from plughost_openapi.rendering import render  # noqa: PLC0415 - as above

        return render(describe(self._addresses.view, site, (), self._about), as_format)


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

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._template = Template((FOLDER / "index.html").read_text(encoding="utf-8"))

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the page."""
        view, own = self._addresses.view, self._addresses.own_sites[0]
        sites = [own, *(site for site in view.sites if site != own)]
        here = view.sites.get(req.site)
        has_console = here is not None and any(group.prefix == _CONSOLE for _, group in here.groups)
        back = f'<nav class="back"><a href="{_CONSOLE}/routes">Back to the console</a></nav>\n' if has_console else ""
        page = self._template.substitute(sites=html.escape(" ".join(sites)), back=back)
        resp.set_header("Content-Security-Policy", self._policy(host_name(req)))
        resp.set_header("Referrer-Policy", "no-referrer")
        _send(req, resp, page.encode(), "text/html; charset=utf-8")

    def _policy(self, host: str) -> str:
        """Return a policy by which the page loads files only from here and calls only the host's listeners."""
        listeners = [url for site in self._addresses.view.sites for url in self._addresses.of(site, host)]
        policy = {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": f"'self' {_INSERTED_STYLE}",
            "img-src": "'self' data:",
            "connect-src": " ".join(("'self'", *listeners)),
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        return "; ".join(f"{name} {value}" for name, value in policy.items())


class Asset:
    """A file that the page loads."""

    def on_get(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Send it."""
        media_type = _TYPES.get(Path(name).suffix, "text/plain; charset=utf-8")
        resp.set_header("Cache-Control", "no-cache")
        send_file(req, resp, FOLDER / name, media_type=media_type, etag=_digest_of_file(name))


@cache
def _digest_of_file(name: str) -> str:
    """Return an entity tag that is the same on all hosts, whenever the file was installed."""
    return _digest((FOLDER / name).read_bytes())


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _send(req: Request, resp: falcon.Response, body: bytes, content_type: str) -> None:
    """Send a body, or 304 if the client has it."""
    resp.set_header("Cache-Control", "no-cache")
    resp.append_header("Vary", "Accept")
    send_file(req, resp, BytesIO(body), media_type=content_type, etag=_digest(body))
