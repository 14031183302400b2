"""Tokens for any role, where no plugin that issues some is installed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import falcon

from plughost._api.declarations import Principal
from plughost._api.hookspecs import hookimpl
from plughost.testing._distributions import plugin_distribution

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib import metadata

    from plughost.http import Request


class Tokens:
    """Issues tokens to whomever a test names, with any roles, and is the authenticator of hosts that have it.

    `running_host(beside=[tokens.distribution])` has it, and a request with `headers=tokens.headers("admin")` gets in.

    Attributes:
        distribution: What to put beside the plugins of a host. No other plugin there is an authenticator.
    """

    def __init__(self) -> None:
        self._principals: dict[str, Principal] = {}
        self.distribution: metadata.Distribution = plugin_distribution("test-tokens", self)

    def headers(self, *roles: str, name: str = "tester@example.org") -> dict[str, str]:
        """Return the header field with a new token, which is good until this object is gone.

        Args:
            *roles: The roles that the principal has.
            name: Who it is.
        """
        token = secrets.token_urlsafe()
        self._principals[token] = Principal(name, frozenset(roles))
        return {"Authorization": f"Bearer {token}"}

    @hookimpl
    def register_authenticator(self) -> Callable[[Request], Principal | None]:
        """Return what finds the principal behind a request."""
        return self._principal

    def _principal(self, req: Request) -> Principal | None:
        scheme, _, token = (req.auth or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        if token not in self._principals:
            raise falcon.HTTPUnauthorized(challenges=['Bearer error="invalid_token"'])
        return self._principals[token]
