"""A site that answers nobody but who has a role."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plughost._api.declarations import Operation
from plughost._apps.declared import BEARER, Security

if TYPE_CHECKING:
    import falcon

    from plughost._api.declarations import RouteGroup
    from plughost._apps.declared import Authenticator
    from plughost.http._request import Request


class RoleRequired:
    """Refuses a request to any resource of a site whose token lacks a role (RFC 6750)."""

    def __init__(self, authenticator: Authenticator, role: str) -> None:
        self._enforce = Security(Operation(summary="", security=(BEARER,), roles=(role,)), "admin", authenticator)

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Let a request through, or refuse it with 401 or 403."""
        self._enforce(req, params)


def needing(group: RouteGroup, role: str | None) -> RouteGroup:
    """Return a route group as it is on a site that wants a role, if any: each operation needs a token with one."""
    if role is None:
        return group

    def with_role(operation: Operation) -> Operation:
        return replace(operation, security=(BEARER,), roles=operation.roles or (role,))

    routes = (
        replace(route, operations={method: with_role(each) for method, each in route.operations.items()})
        for route in group.routes
    )
    return replace(group, routes=tuple(routes))
