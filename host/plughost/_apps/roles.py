"""A site that answers nobody but who has a role."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import falcon

from plughost.http._authentication import principal_of

if TYPE_CHECKING:
    from plughost._api.declarations import Operation, RouteGroup
    from plughost._apps.declared import Authenticator
    from plughost.http._request import Request


class RoleRequired:
    """Refuses a request to any resource of a site whose token lacks a role (RFC 6750)."""

    def __init__(self, authenticator: Authenticator, role: str) -> None:
        self._authenticator = authenticator
        self._role = role

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Let a request through, or refuse it.

        Raises:
            falcon.HTTPUnauthorized: It has no token, or an invalid one.
            falcon.HTTPForbidden: Its token lacks the role.
        """
        principal = principal_of(req, self._authenticator)
        if principal is None:
            raise falcon.HTTPUnauthorized(
                description="This site is for operators: send a token as `Authorization: Bearer <token>`.",
                challenges=['Bearer realm="admin"'],
            )
        if self._role not in principal.roles:
            raise falcon.HTTPForbidden(
                description=f"This site is open to the role {self._role} only.",
                headers={"WWW-Authenticate": 'Bearer realm="admin", error="insufficient_scope"'},
            )


def needing(group: RouteGroup, role: str | None) -> RouteGroup:
    """Return a route group as it is on a site that wants a role, if any: each operation needs a token with one."""
    if role is None:
        return group

    def with_role(operation: Operation) -> Operation:
        return replace(operation, security=("bearer",), roles=operation.roles or (role,))

    routes = (
        replace(route, operations={method: with_role(each) for method, each in route.operations.items()})
        for route in group.routes
    )
    return replace(group, routes=tuple(routes))
