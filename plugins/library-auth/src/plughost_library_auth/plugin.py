"""The library service: tokens for credentials, resources guarded by roles, and an authenticator for other plugins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from plughost import hookimpl
from plughost.declarations import Check, Health, Principal, Route, RouteGroup
from plughost_library_auth import operations
from plughost_library_auth.access import Guard
from plughost_library_auth.commands import hash_password_command, rotate_key_command
from plughost_library_auth.keyring import KEY_FILE, KeyFile, KeyRing
from plughost_library_auth.resources import Login, PublicKeys, Secured, Service
from plughost_library_auth.settings import Settings
from plughost_library_auth.throttle import LoginThrottle
from plughost_library_auth.tokens import Tokens
from plughost_library_auth.users import UserStore, demo_users

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from plughost.context import PluginContext
    from plughost.http import Request

PREFIX: Final = "/mylibrary"


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model of `[plugins.library-auth]`."""
    return Settings


@hookimpl
def register_authenticator(context: PluginContext[Settings]) -> Callable[[Request], Principal | None]:
    """Let every plugin of the host take this one's tokens."""
    return _guard(context, _keys(context)).principal


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the service on the site `library`."""
    settings = context.settings
    keys = _keys(context)
    guard = _guard(context, keys)
    throttle = LoginThrottle(
        account=context.counter(settings.login_limit_account, "failed-logins-of-account", always=True),
        address=context.counter(settings.login_limit_address, "failed-logins-of-address", always=True),
    )
    login = Login(_users(context), _tokens(context, keys), throttle, guard, context)
    routes = (
        Route("/setup/login", login, {"GET": operations.LOGIN}),
        Route("/setup/secured", Secured(guard, "user", "admin"), {"GET": operations.SECURED}),
        Route("/setup/secured/admin", Secured(guard, "admin"), {"GET": operations.ADMIN}),
        Route("/libraryAuthentification", Service(PREFIX), {"GET": operations.SERVICE}),
        Route("/.well-known/jwks.json", PublicKeys(keys), {"GET": operations.PUBLIC_KEYS}),
    )
    return [RouteGroup(prefix=PREFIX, site="library", routes=routes, versions=("1.0",), title="Library service")]


@hookimpl
def register_checks(context: PluginContext[Settings]) -> list[Check]:
    """Watch the signing key: without its file, a restart would log everybody out."""
    path = context.data_dir / KEY_FILE
    return [Check(name="library-auth-signing-key", check=lambda: _signing_key_health(path))]


@hookimpl
def register_commands() -> list[click.Command]:
    """Return `hash-password` and `rotate-key`."""
    return [hash_password_command, rotate_key_command]


@hookimpl
def started(context: PluginContext[Settings]) -> None:
    """Make the signing key, and warn of settings that work and are not safe, or are safe and don't work."""
    _keys(context).prepare()
    if context.dev:
        return
    if not context.settings.require_tls:
        context.logger.warning(
            "credentials and tokens are accepted over plain HTTP; set require_tls = true to refuse them there"
        )
    if not context.settings.users:
        context.logger.warning("nobody can log in; add users to [plugins.library-auth]")


def _keys(context: PluginContext[Settings]) -> KeyRing:
    return KeyRing(context.data_dir, algorithm=context.settings.algorithm, lifetime=context.settings.token_lifetime)


def _tokens(context: PluginContext[Settings], keys: KeyRing) -> Tokens:
    return Tokens(keys, issuer=context.settings.issuer, lifetime=context.settings.token_lifetime)


def _guard(context: PluginContext[Settings], keys: KeyRing) -> Guard:
    return Guard(_tokens(context, keys), require_tls=context.settings.require_tls)


def _users(context: PluginContext[Settings]) -> UserStore:
    """Return the configured users; with `--dev` and none configured, the demo users, announced with passwords."""
    settings = context.settings
    if not context.dev or settings.users:
        return UserStore(settings.users, rounds=settings.bcrypt_rounds)
    demo = demo_users()
    for password, user in demo.items():
        context.announce(f"demo user {user.email} with password {password}")
    return UserStore(demo.values(), rounds=settings.bcrypt_rounds)


def _signing_key_health(path: Path) -> Health:
    """Read the key file afresh; a KeyFileError counts as down."""
    key = KeyFile.read(path).signing
    created = datetime.fromtimestamp(key.created, UTC)
    return Health(up=True, data={"algorithm": key.algorithm, "created": f"{created:%Y-%m-%dT%H:%M:%SZ}"})
