"""Middleware that restricts the console to the person at this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import falcon

if TYPE_CHECKING:
    from plughost import HostView
    from plughost.http import Request
    from plughost_dev_console.gate import Gate

PREFIX: Final = "/q/dev"
NO_SESSION: Final = "The console is closed"
FORM: Final = "application/x-www-form-urlencoded"

_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With no-referrer, browsers would send `Origin: null` with forms.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Refuses requests that don't come from a page of this console, with a session, in a browser on this machine.

    A resource with a true attribute `public` needs no session, but everything else.
    """

    def __init__(self, gate: Gate, host: HostView) -> None:
        self._gate = gate
        self._host = host

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Check a request before it reaches its resource."""
        if not req.is_local:
            raise falcon.HTTPForbidden(description="The console is for browsers on the host's own machine.")
        self._require_own_name(req)
        _require_own_page(req)
        session = self._gate.session(req.cookies.get(cookie_name(self._host, req)))
        req.context.session = session
        if getattr(resource, "public", False):
            return
        if session is None:
            raise falcon.HTTPForbidden(title=NO_SESSION, description="Open it with a link, which works once.")
        if req.method not in _SAFE and hasattr(resource, f"on_{req.method.lower()}"):  # an unknown method is a 405
            req.context.form = self._form(req, session)

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Set the security headers."""
        for name, value in _HEADERS.items():
            resp.set_header(name, value)

    def _require_own_name(self, req: Request) -> None:
        """Refuse a foreign host name, which a DNS rebinding attack would use."""
        here = (req.site, req.scheme)
        own = {port for each, port in self._host.listeners.items() if (each.site, each.scheme) == here}
        names = {f"{name}:{port}" for name in _NAMES for port in own}
        if _DEFAULT_PORTS[req.scheme] in own:
            names.update(_NAMES)
        if req.env.get("HTTP_HOST", "").lower() not in names:
            raise falcon.HTTPForbidden(
                description="The console answers to localhost, 127.0.0.1 and [::1], with the port it listens on."
            )

    def _form(self, req: Request, session: str) -> dict[str, str]:
        """Return the fields of a form with a valid CSRF token."""
        if (req.content_type or "").partition(";")[0].strip().lower() != FORM:
            raise falcon.HTTPUnsupportedMediaType(description=f"The body must be a form of the type {FORM}.")
        # The host parses declared parameters and JSON bodies, but not forms.
        try:
            fields = parse_qs(req.bounded_stream.read().decode("ascii"), keep_blank_values=True, max_num_fields=100)
        except (UnicodeDecodeError, ValueError):
            raise falcon.HTTPBadRequest(description="The body is not a form.") from None
        form = {name: values[-1] for name, values in fields.items()}
        if not self._gate.is_valid_token(form.pop("csrf", None), session):
            raise falcon.HTTPForbidden(description="This form is not from a page of this console. Load the page again.")
        return form


def cookie_name(host: HostView, req: Request) -> str:
    """Return the name of the session cookie. It includes the host, because all ports of a machine share cookies."""
    ports = [port for each, port in host.listeners.items() if each.site == req.site]
    return f"plughost-console-{min(ports, default=0)}"


def _require_own_page(req: Request) -> None:
    """Refuse requests of pages of another origin; another port is another origin (Fetch Metadata; RFC 6454)."""
    fetch_site = req.env.get("HTTP_SEC_FETCH_SITE", "none")
    if req.method in _SAFE:
        opened = req.env.get("HTTP_SEC_FETCH_MODE") == "navigate" and req.env.get("HTTP_SEC_FETCH_DEST") == "document"
        refused = fetch_site not in ("none", "same-origin") and not opened
    else:
        own = f"{req.scheme}://{req.env.get('HTTP_HOST', '').lower()}"
        refused = fetch_site not in ("none", "same-origin") or req.env.get("HTTP_ORIGIN") != own
    if refused:
        raise falcon.HTTPForbidden(description="This request is not from a page of this console.")
