"""The guard: a middleware before every resource of the console, which lets in nobody but the person at this machine."""

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
    # Not no-referrer, under which browsers send `Origin: null` with forms.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Refuses what does not come from a page of this console, in a browser on this machine, opened by a link.

    A resource with a true attribute `public` needs no session; all else holds for it, too.
    """

    def __init__(self, gate: Gate, host: HostView) -> None:
        """Guard by a gate."""
        self._gate = gate
        self._host = host

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Let a request through to its resource, or refuse it."""
        _require_this_machine(req)
        self._require_own_name(req)
        _require_own_page(req)
        session = self._gate.session(req.cookies.get(cookie_name(self._host, req)))
        req.context.session = session
        if getattr(resource, "public", False):
            return
        if session is None:
            raise falcon.HTTPForbidden(title=NO_SESSION, description="It is opened by a link that can be used once.")
        if req.method not in _SAFE and hasattr(resource, f"on_{req.method.lower()}"):  # what isn't there is a 405
            req.context.form = self._form(req, session)

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Tell the browser what to refuse."""
        for name, value in _HEADERS.items():
            resp.set_header(name, value)

    def _require_own_name(self, req: Request) -> None:
        """Refuse a foreign name: that is how a page elsewhere reaches this machine by a DNS name of its own."""
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
        """Return the fields of a form, which carries the session's token."""
        if (req.content_type or "").partition(";")[0].strip().lower() != FORM:
            raise falcon.HTTPUnsupportedMediaType(description=f"This is a form, of the type {FORM}.")
        # Declared parameters are those of path, query and header; a form is a body, and not JSON.
        try:
            fields = parse_qs(req.bounded_stream.read().decode("ascii"), keep_blank_values=True, max_num_fields=100)
        except (UnicodeDecodeError, ValueError):
            raise falcon.HTTPBadRequest(description="This is no form.") from None
        form = {name: values[-1] for name, values in fields.items()}
        if not self._gate.recognises(form.pop("csrf", None), session):
            raise falcon.HTTPForbidden(description="This form is not from a page of this console. Load the page again.")
        return form


def cookie_name(host: HostView, req: Request) -> str:
    """Return the name of the session's cookie; hosts on one machine share cookies, whatever their ports."""
    ports = [port for each, port in host.listeners.items() if each.site == req.site]
    return f"plughost-console-{min(ports, default=0)}"


def _require_this_machine(req: Request) -> None:
    if not req.is_local:
        raise falcon.HTTPForbidden(description="The console is for browsers on the host's own machine.")


def _require_own_page(req: Request) -> None:
    """Refuse what another site's page sends; ports are sites of their own here (Fetch Metadata; RFC 6454)."""
    fetch_site = req.env.get("HTTP_SEC_FETCH_SITE", "none")
    if req.method in _SAFE:
        opened = req.env.get("HTTP_SEC_FETCH_MODE") == "navigate" and req.env.get("HTTP_SEC_FETCH_DEST") == "document"
        refused = fetch_site not in ("none", "same-origin") and not opened
    else:
        own = f"{req.scheme}://{req.env.get('HTTP_HOST', '').lower()}"
        refused = fetch_site not in ("none", "same-origin") or req.env.get("HTTP_ORIGIN") != own
    if refused:
        raise falcon.HTTPForbidden(description="This request is not from a page of this console.")
