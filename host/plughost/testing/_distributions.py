"""Plugins for tests without installation: objects of this process as distributions. One of them issues tokens."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

import falcon

from plughost._api.declarations import Principal
from plughost._api.hookspecs import hookimpl
from plughost._plugins.discovery import MemoryDistribution

if TYPE_CHECKING:
    from plughost.http import Request


def plugin_distribution(
    name: str,
    plugin: object,
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
    distribution: str | None = None,
) -> metadata.Distribution:
    """Return a distribution that contains one plugin.

    Args:
        name: The plugin's name.
        plugin: The module or object with the hook implementations, or an exception to raise at import.
        version: The distribution's version.
        requires: The distribution's requirements, in pip's syntax.
        distribution: The distribution's name. By default the plugin's, prefixed with `plughost-`.
    """

    def load() -> object:
        if isinstance(plugin, BaseException):
            raise plugin
        return plugin

    lines = ["Metadata-Version: 2.1", f"Name: {distribution or f'plughost-{name}'}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return MemoryDistribution("\n".join(lines), name, "in_memory:plugin", load)


class Tokens:
    """An authenticator for tests, which issues tokens for any name and roles.

    Add it with `running_host(beside=[tokens.distribution])`, and send requests with `headers=tokens.headers("admin")`.

    Attributes:
        distribution: The distribution to pass as `beside`. No other plugin of the host may be an authenticator.
    """

    def __init__(self) -> None:
        self._principals: dict[str, Principal] = {}
        self.distribution: metadata.Distribution = plugin_distribution("test-tokens", self)

    def headers(self, *roles: str, name: str = "tester@example.org") -> dict[str, str]:
        """Return the header with a new token for a principal, valid as long as this object exists."""
        token = secrets.token_urlsafe()
        self._principals[token] = Principal(name, frozenset(roles))
        return {"Authorization": f"Bearer {token}"}

    @hookimpl
    def register_authenticator(self) -> Callable[[Request], Principal | None]:
        """Return the function that finds the principal of a request."""
        return self._principal

    def _principal(self, req: Request) -> Principal | None:
        scheme, _, token = (req.auth or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        if token not in self._principals:
            raise falcon.HTTPUnauthorized(challenges=['Bearer error="invalid_token"'])
        return self._principals[token]
