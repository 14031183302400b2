"""The principal of a request, authenticated once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plughost._api.declarations import Principal
    from plughost.http._request import Request


def principal_of(req: Request, authenticator: Callable[[Request], Principal | None] | None) -> Principal | None:
    """Return the principal that `PluginContext.authenticator` finds, and cache it as `req.principal`.

    None if the request has no credentials, or if no installed plugin is an authenticator.

    Raises:
        falcon.HTTPUnauthorized: The credentials are invalid.
        falcon.HTTPForbidden: Credentials must not be sent this way, such as over plain HTTP.
    """
    if req.principal is None and authenticator is not None:
        req.principal = authenticator(req)
    return req.principal
