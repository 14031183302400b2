"""Lets Swagger UI try out what other listeners of the same host serve (the Fetch standard, "HTTP-CORS protocol").

The page comes from one port, and the library service, say, is on another: to a browser that is another origin. Pages
of a listener of the plugin's own site may therefore use every site of the host, under the host name that they came
from, and without the browser's own credentials: cookies and remembered passwords stay out of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import falcon

if TYPE_CHECKING:
    from plughost import HostView
    from plughost.http import Request

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"


class TryItOut:
    """The middleware."""

    def __init__(self, view: HostView, plugin: str) -> None:
        """Take whose pages are let in: those of the site on which a plugin is mounted."""
        self._view = view
        self._plugin = plugin

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Let the page read the response, and answer a preflight."""
        environ = req.env
        if "HTTP_ORIGIN" not in environ or not self._allows(req):
            return
        req.origin_allowed = True
        resp.set_header("Access-Control-Allow-Origin", environ["HTTP_ORIGIN"])
        resp.set_header("Access-Control-Expose-Headers", "*")
        if req.method == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
            resp.status = falcon.HTTP_204
            resp.set_header("Access-Control-Allow-Methods", _METHODS)
            resp.set_header("Access-Control-Allow-Headers", req.get_header("Access-Control-Request-Headers") or "*")
            resp.complete = True

    def _allows(self, req: Request) -> bool:
        """Whether the page that sends the request came from this host, under the same host name."""
        try:
            origin = urlsplit(req.env.get("HTTP_ORIGIN", ""))
            host, port = origin.hostname, origin.port
        except ValueError:
            return False
        if not host or host != req.host.strip("[]").lower():
            return False
        own = next((each.sites for each in self._view.plugins if each.name == self._plugin), ())
        return any(
            listener.site in own and (listener.scheme, open_port) == (origin.scheme, port)
            for listener, open_port in self._view.listeners.items()
        )
