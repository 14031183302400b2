"""Who is asking: the principal behind a request, found once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plughost._api.declarations import Principal
    from plughost.http._request import Request


def principal_of(req: Request, authenticator: Callable[[Request], Principal | None] | None) -> Principal | None:
    """Return whom `PluginContext.authenticator` finds behind a request, and remember it as `req.principal`.

    None where the request has no credentials, or no installed plugin is an authenticator.

    Raises:
        falcon.HTTPUnauthorized: There are credentials, and they are not good.
        falcon.HTTPForbidden: They must not be sent this way, such as over plain HTTP.
    """
    if req.principal is None and authenticator is not None:
        req.principal = authenticator(req)
    return req.principal
