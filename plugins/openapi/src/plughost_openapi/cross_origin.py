"""CORS for Swagger UI, so that it can call other listeners of the same host (Fetch standard, "HTTP-CORS protocol").

To a browser, another port such as the library service's is another origin. Therefore pages of the plugin's own site
may call every site of the host, under the same host name and without the browser's credentials: no cookies, no
remembered passwords.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import falcon

if TYPE_CHECKING:
    from plughost.http import Request
    from plughost_openapi.addresses import Addresses

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"


class TryItOut:
    """The middleware that allows these cross-origin requests."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Allow the page to read the response, and answer a preflight."""
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
        """Return whether the requesting page came from this host, under the same host name.

        An unchecked name counts as localhost: after DNS rebinding, a page of another site has the name of the request.
        """
        try:
            origin = urlsplit(req.env.get("HTTP_ORIGIN", ""))
            host, port = origin.hostname, origin.port
        except ValueError:
            return False
        if not host or host != urlsplit(req.prefix).hostname:
            return False
        own = self._addresses.own_sites
        return any(
            listener.site in own and (listener.scheme, open_port) == (origin.scheme, port)
            for listener, open_port in self._addresses.view.listeners.items()
        )
