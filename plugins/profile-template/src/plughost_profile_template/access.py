"""Who may use the service, and as whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import falcon

from plughost import PluginError
from plughost.http import principal_of

if TYPE_CHECKING:
    from plughost import PluginContext, Principal
    from plughost.http import Request
    from plughost_profile_template.settings import Settings

_BEARER: Final = 'Bearer realm="users"'


class Access:
    """Finds the user behind a request, with the authenticator of whichever plugin offers one (RFC 6750)."""

    def __init__(self, context: PluginContext[Settings]) -> None:
        """Take the settings.

        Raises:
            PluginError: They ask for users, and nothing installed can tell who is one. The host then marks this plugin
                as failed, shows both sentences, and serves the others.
        """
        self._authenticator: Callable[[Request], Principal | None] | None = None
        self._roles = frozenset(context.settings.roles)
        if context.settings.auth == "bearer":
            if context.authenticator is None:
                raise PluginError(
                    'the setting auth is "bearer", and no plugin that serves here is an authenticator',
                    'Install one, such as plughost-library-auth (plughost install library-auth), or set auth = "none".',
                )
            self._authenticator = context.authenticator

    @property
    def security(self) -> tuple[str, ...]:
        """The security schemes of the operations, for the API description."""
        return () if self._authenticator is None else ("bearer",)

    def user(self, req: Request) -> Principal | None:
        """Return the user, or None where all share one profile.

        Raises:
            falcon.HTTPUnauthorized: There is no token, or a bad one.
            falcon.HTTPForbidden: The user has none of the roles, or must not send a token this way.
        """
        if self._authenticator is None:
            return None
        principal = principal_of(req, self._authenticator)  # a bad token is refused in there
        if principal is None:
            raise falcon.HTTPUnauthorized(
                description="This resource needs a token: send it as `Authorization: Bearer <token>`.",
                challenges=[_BEARER],
            )
        if self._roles and not self._roles & principal.roles:
            raise falcon.HTTPForbidden(
                description=f"This resource is open to the role {' or '.join(sorted(self._roles))} only.",
                headers={"WWW-Authenticate": f'{_BEARER}, error="insufficient_scope"'},
            )
        return principal
