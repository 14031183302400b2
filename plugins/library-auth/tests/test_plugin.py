"""The plugin's hooks: users, warnings, health, and the authenticator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import falcon
import pytest
from falcon import testing
from structlog import get_logger
from structlog.testing import capture_logs

from plughost import PluginContext
from plughost.http import Request
from plughost.testing import running_host
from plughost_library_auth import plugin
from plughost_library_auth.keyring import KEY_FILE
from plughost_library_auth.settings import Settings

MakeContext = Callable[..., PluginContext[Settings]]

USER = {
    "email": "a@example.org",
    "password_hash": "$2b$04$......................w74bL5gU7LSJClZClCa.Pkz14aTv/XO",
    "role": "user",
}


def request(authorization: str | None = None, scheme: str = "https") -> Request:
    """Return a request to another plugin."""
    headers = {"Authorization": authorization} if authorization is not None else {}
    return Request(testing.create_environ(headers=headers, scheme=scheme))


def test_demo_users_are_announced_with_their_passwords(make_client: Callable[..., Any]) -> None:
    """With `--dev` and no users, the operator sees how to log in."""
    client = make_client()
    assert client.context.announcements == [
        "demo user user@example.org with password user",
        "demo user admin@example.org with password admin",
    ]
    assert client.login("admin@example.org", "admin").status_code == 200


@pytest.mark.parametrize("settings", [{"dev": False}, {"dev": True, "users": [USER]}, {"dev": False, "users": [USER]}])
def test_demo_users_exist_only_in_development(make_client: Callable[..., Any], settings: dict[str, Any]) -> None:
    """Without `--dev`, or with configured users, a host has no demo users."""
    client = make_client(**settings)
    assert client.context.announcements == []
    assert client.login("admin@example.org", "admin").status_code == 401
    assert client.login("user@example.org", "user").status_code == 401


@pytest.mark.parametrize(
    ("dev", "listeners", "settings", "warnings"),
    [
        (True, ["http"], {}, []),
        (False, ["http"], {}, ["over plain HTTP", "nobody can log in"]),
        (False, ["http"], {"users": [USER]}, ["over plain HTTP"]),
        (False, ["http"], {"users": [USER], "require_tls": True}, []),
        (False, ["https"], {"users": [USER]}, []),
    ],
)
def test_an_unsafe_start_is_a_warning(
    dev: bool, listeners: list[str], settings: dict[str, Any], warnings: list[str]
) -> None:
    """Without `--dev`, it warns of tokens over plain HTTP where a site has it, and of a host without users."""
    sites = {"library": {"listeners": listeners}}
    given = {"plugins": {"library-auth": settings}, "sites": sites, "tls": {"self_signed": True}}
    with capture_logs() as entries, running_host(["library-auth"], settings=given, dev=dev, logger=get_logger()):
        found = [entry["event"] for entry in entries if entry["log_level"] == "warning"]
    assert [text in event for text, event in zip(warnings, found, strict=True)] == [True] * len(warnings)


def test_the_check_covers_the_key_file(make_context: MakeContext) -> None:
    """The signing key is up while its file can be read; otherwise it is down, with the reason."""
    context = make_context()
    (check,) = plugin.register_checks(context)
    plugin.started(context)
    health = check.check()
    assert (health.up, health.data["algorithm"]) == (True, "EdDSA")
    (context.data_dir / KEY_FILE).unlink()
    with pytest.raises(Exception, match=r"cannot read the signing keys .*: No such file"):
        check.check()


def test_the_authenticator_returns_the_principal(make_context: MakeContext, make_client: Callable[..., Any]) -> None:
    """Every plugin of the host gets a token's user and roles."""
    authenticate = plugin.register_authenticator(make_context())
    principal = authenticate(request(f"Bearer {make_client().token('admin')}"))
    assert principal is not None
    assert (principal.name, principal.roles) == ("admin@example.org", frozenset({"admin"}))


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic dXNlcjp1c2Vy", "Token x"])
def test_no_token_is_no_principal(make_context: MakeContext, header: str | None) -> None:
    """Without a bearer token there is no error: the other plugin decides what that means."""
    assert plugin.register_authenticator(make_context(require_tls=True))(request(header, scheme="http")) is None


def test_an_invalid_token_is_refused(make_context: MakeContext) -> None:
    """The error has the challenge that says so."""
    with pytest.raises(falcon.HTTPUnauthorized) as caught:
        plugin.register_authenticator(make_context())(request("Bearer x.y.z"))
    assert dict(caught.value.headers or {})["WWW-Authenticate"] == 'Bearer realm="mylibrary", error="invalid_token"'


def test_a_token_over_plain_http_is_refused_everywhere(
    make_context: MakeContext, make_client: Callable[..., Any]
) -> None:
    """With `require_tls`, other plugins' resources don't accept tokens over plain HTTP either."""
    authenticate = plugin.register_authenticator(make_context(require_tls=True))
    token = make_client().token()
    assert authenticate(request(f"Bearer {token}")) is not None
    with pytest.raises(falcon.HTTPForbidden):
        authenticate(request(f"Bearer {token}", scheme="http"))
