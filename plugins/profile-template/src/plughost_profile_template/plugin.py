"""The hooks, which the host calls to learn what the plugin provides. Start reading here.

Settings → store → middleware → routes: each hook returns declarations, and the host does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plughost import Middleware, PluginError, Route, RouteGroup, hookimpl
from plughost.ratelimits import RateLimit
from plughost_profile_template.envelope import ENVELOPE
from plughost_profile_template.models import VIEWS
from plughost_profile_template.resources import UserProfile, operations
from plughost_profile_template.settings import Settings
from plughost_profile_template.store import STORE, Profiles

if TYPE_CHECKING:
    from plughost import PluginContext, Store

PREFIX: Final = "/users"


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model that validates `[plugins.profile-template]`."""
    return Settings


@hookimpl
def register_stores(context: PluginContext[Settings]) -> list[Store]:
    """Declare the store `profiles`; the host opens it, and `register_routes` gets it from the context."""
    return [STORE]


@hookimpl
def register_middleware(context: PluginContext[Settings]) -> list[Middleware]:
    """Limit the requests of each client below the prefix."""
    limit = RateLimit(context, context.settings.rate_limit)
    return [Middleware(name="profile-template-rate-limit", component=limit)]


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the service: every response below `/users` has this plugin's envelope."""
    schemes = _security(context)
    resource = UserProfile(Profiles(context.store(STORE)), by_user=bool(schemes))
    return [
        RouteGroup(
            prefix=PREFIX,
            routes=(Route("/profile", resource, operations(schemes, context.settings.roles)),),
            errors=ENVELOPE,
            versions=tuple(VIEWS),
            title="User profile",
            realm="users",
        )
    ]


def _security(context: PluginContext[Settings]) -> tuple[str, ...]:
    """Return the security schemes that the operations declare and the host enforces.

    Raises:
        PluginError: The settings require users, but no installed plugin authenticates them. The host marks this
            plugin as failed, shows both sentences, and serves the others.
    """
    if context.settings.auth == "none":
        return ()
    if context.authenticator is None:
        raise PluginError(
            'the setting auth is "bearer", and no plugin that serves here is an authenticator',
            'Install one, such as plughost-library-auth (plughost install library-auth), or set auth = "none".',
        )
    return ("bearer",)
