"""The library service: tokens for credentials, resources guarded by roles, and an authenticator for other plugins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from plughost import Check, Health, Middleware, Principal, Route, RouteGroup, Store, hookimpl
from plughost.stores import StoreError
from plughost_library_auth import operations
from plughost_library_auth.access import PREFIX, REALM, Authenticator, SecureOnly
from plughost_library_auth.keyring import KEY_FILE, KeyFile, KeyFileError, KeyRing
from plughost_library_auth.records import STORE, Records
from plughost_library_auth.resources import Discovery, Login, PublicKeys, Secured, Service
from plughost_library_auth.revocations import Revocations
from plughost_library_auth.settings import Settings
from plughost_library_auth.throttle import MAX_WAIT, LoginThrottle
from plughost_library_auth.tokens import Tokens
from plughost_library_auth.users import UserStore, demo_users

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from plughost import PluginContext
    from plughost.http import Request

_PREPARE_INTERVAL: Final = 1.0


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model that validates `[plugins.library-auth]`."""
    return Settings


@hookimpl
def register_stores(context: PluginContext[Settings]) -> list[Store]:
    """Declare the store `library-auth`: users, logins and revoked tokens."""
    return [STORE]


@hookimpl
def register_authenticator(context: PluginContext[Settings]) -> Callable[[Request], Principal | None]:
    """Return the authenticator, so that every plugin of the host accepts the tokens."""
    keys = _keys(context)
    require_tls = context.settings.require_tls
    return Authenticator(_tokens(context, keys), _revocations(context), require_tls=require_tls)


@hookimpl
def register_middleware(context: PluginContext[Settings]) -> list[Middleware]:
    """With `require_tls`, refuse plain HTTP before credentials are requested."""
    return [Middleware(name="secure-only", component=SecureOnly())] if context.settings.require_tls else []


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the service on the site `library`."""
    settings = context.settings
    keys = _keys(context)
    records = _records(context)
    login = Login(
        users=_users(context),
        tokens=_tokens(context, keys),
        throttle=_throttle(context, records),
        records=records,
        revocations=_revocations(context),
        context=context,
    )
    routes = (
        Route("/setup/login", login, {"GET": operations.LOGIN, "DELETE": operations.LOGOUT}),
        Route("/setup/secured", Secured(), {"GET": operations.SECURED}),
        Route("/setup/secured/admin", Secured(), {"GET": operations.ADMIN}),
        Route("/libraryAuthentification", Service(), {"GET": operations.SERVICE}),
        Route("/.well-known/openid-configuration", Discovery(settings.issuer), {"GET": operations.METADATA}),
        Route("/.well-known/jwks.json", PublicKeys(keys), {"GET": operations.PUBLIC_KEYS}),
    )
    return [
        RouteGroup(
            prefix=PREFIX, site="library", routes=routes, versions=("1.0",), realm=REALM, title="Library service"
        )
    ]


@hookimpl
def register_checks(context: PluginContext[Settings]) -> list[Check]:
    """Check the file of signing keys: without it, a restart would log everybody out."""
    path = context.data_dir / KEY_FILE
    return [Check(name="library-auth-signing-key", check=lambda: _signing_key_health(path))]


@hookimpl
def register_commands() -> list[click.Command]:
    """Add `hash-password`, `rotate-key` and `users`."""
    from plughost_library_auth.commands import (  # noqa: PLC0415 - a host that serves runs no commands
        hash_password_command,
        rotate_key_command,
    )
    from plughost_library_auth.user_commands import users_group  # noqa: PLC0415 - as above

    return [hash_password_command, rotate_key_command, users_group]


@hookimpl
def started(context: PluginContext[Settings]) -> None:
    """Create the signing key, poll for revoked tokens, and warn of unsafe or useless settings."""
    stop = _poll_stops(context)[id(context)] = Event()
    Thread(target=_revocations(context).poll, args=(stop,), name="revoked-tokens", daemon=True).start()
    try:
        _keys(context).prepare()
    except OSError as error:
        context.logger.error("the signing key can't be kept, so nobody can log in", reason=str(error))
        Thread(target=_prepare_later, args=(context, stop), name="signing-key", daemon=True).start()
    if context.dev:
        return
    if not context.settings.require_tls and any(each.scheme == "http" for each in context.host.listeners):
        context.logger.warning(
            "credentials and tokens are accepted over plain HTTP; set require_tls = true to refuse them there"
        )
    if not context.settings.users and not _has_stored_users(context):
        context.logger.warning(
            "nobody can log in; add users by `plughost library-auth users add`, or to [plugins.library-auth]"
        )


@hookimpl
def stopping(context: PluginContext[Settings]) -> None:
    """Stop the threads that `started` began."""
    stop = _poll_stops(context).pop(id(context), None)
    if stop is not None:
        stop.set()


def _prepare_later(context: PluginContext[Settings], stop: Event) -> None:
    """Create the signing key once it can be stored: no login would, since a host that is not ready gets none."""
    while not stop.wait(_PREPARE_INTERVAL):
        with suppress(OSError, KeyFileError):
            _keys(context).prepare()
            context.logger.info("the signing key is kept now")
            return


def _has_stored_users(context: PluginContext[Settings]) -> bool:
    try:
        return bool(_records(context).users())
    except StoreError:  # unknown; the store itself logs that it is away
        return True


def _poll_stops(context: PluginContext[Settings]) -> dict[int, Event]:
    """Return the stop events of the threads, by context: during a reload, those of two generations run."""
    return context.keep("followers", dict[int, Event])


def _records(context: PluginContext[Settings]) -> Records:
    return Records(context.store(STORE))


def _revocations(context: PluginContext[Settings]) -> Revocations:
    return Revocations(_records(context), context.keep("revoked", dict[str, int]))


def _throttle(context: PluginContext[Settings], records: Records) -> LoginThrottle:
    settings = context.settings
    counter = partial(context.counter, always=True)  # also while the host's rate-limit storage is away
    return LoginThrottle(
        account=counter(settings.login_limit_account, "failed-logins-of-account"),
        address=counter(settings.login_limit_address, "failed-logins-of-address"),
        anywhere=counter(settings.login_limit_anywhere, "failed-logins-anywhere", longest=MAX_WAIT),
        known=counter(settings.login_limit_known, "failed-logins-from-known", longest=MAX_WAIT),
        is_known=records.is_known,
    )


def _keys(context: PluginContext[Settings]) -> KeyRing:
    return KeyRing(context.data_dir, algorithm=context.settings.algorithm, lifetime=context.settings.token_lifetime)


def _tokens(context: PluginContext[Settings], keys: KeyRing) -> Tokens:
    settings = context.settings
    return Tokens(keys, issuer=settings.issuer, lifetime=settings.token_lifetime, audience=settings.audience)


def _users(context: PluginContext[Settings]) -> UserStore:
    """Return the configured users. With `--dev` and none configured, announce and return the demo users."""
    settings = context.settings
    if not context.dev or settings.users:
        return UserStore(settings.users, rounds=settings.bcrypt_rounds, records=_records(context))
    demo = demo_users()
    tokens = _tokens(context, _keys(context))
    for password, user in demo.items():
        context.offer_login(user.email, partial(tokens.issue, user.email, [user.role]))
        context.announce(f"demo user {user.email} with password {password}")
    return UserStore(demo.values(), rounds=settings.bcrypt_rounds, records=_records(context))


def _signing_key_health(path: Path) -> Health:
    """Read the key file again; a KeyFileError makes the check fail."""
    key = KeyFile.read(path).signing
    created = datetime.fromtimestamp(key.created, UTC)
    return Health(up=True, data={"algorithm": key.algorithm, "created": f"{created:%Y-%m-%dT%H:%M:%SZ}"})
