"""Who is asking: credentials and bearer tokens out of a request, and the refusals that go with them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import falcon

from plughost import Principal
from plughost.http import Request, secure_url
from plughost_library_auth.tokens import InvalidToken, Tokens

if TYPE_CHECKING:
    from datetime import datetime

    from plughost_library_auth.revocations import Revocations

REALM: Final = "mylibrary"
PREFIX: Final = "/mylibrary"
# Pairs rather than a dict: Falcon's errors add their challenge to a dict that they are given.
NO_STORE: Final = (("Cache-Control", "no-store"),)

_BASIC: Final = f'Basic realm="{REALM}", charset="UTF-8"'
_BEARER: Final = f'Bearer realm="{REALM}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer(Principal):
    """Whom a token names.

    Attributes:
        expires: When the token ends, in UTC.
        token: What to revoke it by: its `jti`.
    """

    expires: datetime
    token: str


class Authenticator:
    """Finds the principal behind the bearer token of a request (RFC 6750), for every plugin of the host."""

    def __init__(self, tokens: Tokens, revocations: Revocations, *, require_tls: bool) -> None:
        """Take what verifies tokens, which of them were revoked, and whether they are refused over plain HTTP."""
        self._tokens = tokens
        self._revocations = revocations
        self._require_tls = require_tls

    def __call__(self, req: Request) -> Bearer | None:
        """Return whom the request's token names, or None where it has no token.

        Raises:
            falcon.HTTPUnauthorized: The token is invalid.
            falcon.HTTPForbidden: It came over plain HTTP, and `require_tls` is set.
            plughost.stores.StoreError: Since the host started, the store of revoked tokens could not be read.
        """
        token = _credentials(req, "bearer")
        if not token:
            return None
        if self._require_tls:
            refuse_plain_http(req)
        try:
            claims = self._tokens.verify(token)
            if claims.token in self._revocations:
                msg = "the token was revoked"
                raise InvalidToken(msg)
        except InvalidToken:
            raise falcon.HTTPUnauthorized(
                description="The token is invalid or has expired; log in again.",
                challenges=[f'{_BEARER}, error="invalid_token"'],
                headers=NO_STORE,
            ) from None
        return Bearer(claims.email, frozenset(claims.roles), expires=claims.expires, token=claims.token)


def bearer_of(req: Request) -> Bearer:
    """Return whom the host has found behind a request to an operation that declares the security `bearer`."""
    assert isinstance(req.principal, Bearer), "this plugin is the host's authenticator"
    return req.principal


class SecureOnly:
    """A middleware that refuses plain HTTP wherever credentials or tokens are taken, before it asks for any."""

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Refuse it at resources with a true attribute `secret`; raises as `refuse_plain_http`."""
        if getattr(resource, "secret", False):
            refuse_plain_http(req)


def refuse_plain_http(req: Request) -> None:
    """Refuse a request that did not come over TLS.

    Raises:
        falcon.HTTPForbidden: Names the secure port.
    """
    if req.scheme != "https":
        raise falcon.HTTPForbidden(
            description=f"Credentials and tokens are refused over plain HTTP; {_secure_place(req)}.",
            headers=NO_STORE,
        )


def basic_credentials(req: Request) -> tuple[str, str] | None:
    """Return e-mail and password of HTTP Basic credentials (RFC 7617, UTF-8); None where malformed or absent."""
    try:
        decoded = base64.b64decode(_credentials(req, "basic"), validate=True).decode()
    except ValueError:  # not ASCII, not base64, not UTF-8
        return None
    email, colon, password = decoded.partition(":")
    return (email, password) if colon else None


def login_refused() -> falcon.HTTPUnauthorized:
    """Return the one answer to every login that fails, so that it doesn't tell which users exist.

    It is the host's own to a request without credentials, too, down to the text.
    """
    return falcon.HTTPUnauthorized(
        description="This resource needs valid credentials: basic.",
        challenges=[_BASIC],
        headers=NO_STORE,
    )


def base_of(req: Request) -> str:
    """Return the address of the service on localhost: on the site's HTTPS port, where it has one.

    It is the same whatever `Host` says, which anybody can make up.
    """
    secure = secure_url(req)
    scheme, port = ("http", int(req.env["SERVER_PORT"])) if secure is None else ("https", urlsplit(secure).port or 443)
    place = "localhost" if port == {"http": 80, "https": 443}[scheme] else f"localhost:{port}"
    return f"{scheme}://{place}{PREFIX}"


def _credentials(req: Request, scheme: str) -> str:
    """Return what follows the scheme's name, in any case (RFC 9110, 11.1); empty where another scheme was sent.

    Repeated headers arrive joined by commas, which makes their credentials malformed, as it should.
    """
    name, _, credentials = (req.auth or "").partition(" ")
    return credentials.strip(" ") if name.lower() == scheme else ""


def _secure_place(req: Request) -> str:
    url = secure_url(req)
    if url is None:
        return "this site has no HTTPS port, so its settings let nobody in"
    return f"use HTTPS on port {urlsplit(url).port or 443}"
