"""Who is asking: credentials and bearer tokens out of a request, and the refusals that go with them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import falcon

from plughost import Principal
from plughost.http import Request, secure_url
from plughost_library_auth.tokens import Claims, InvalidToken, Tokens

if TYPE_CHECKING:
    from plughost_library_auth.revocations import Revocations

REALM: Final = "mylibrary"
PREFIX: Final = "/mylibrary"
# Pairs rather than a dict: Falcon's errors add their challenge to a dict that they are given.
NO_STORE: Final = (("Cache-Control", "no-store"),)

_BASIC: Final = f'Basic realm="{REALM}", charset="UTF-8"'
_BEARER: Final = f'Bearer realm="{REALM}"'


class Guard:
    """Finds the bearer token of a request and what it allows (RFC 6750)."""

    def __init__(self, tokens: Tokens, revocations: Revocations, *, require_tls: bool) -> None:
        """Take what verifies tokens, which of them were revoked, and whether they are refused over plain HTTP."""
        self._tokens = tokens
        self._revocations = revocations
        self._require_tls = require_tls

    def claims(self, req: Request) -> Claims | None:
        """Return what the request's token says, or None where it has no token.

        Raises:
            falcon.HTTPUnauthorized: The token is invalid.
            falcon.HTTPForbidden: It came over plain HTTP, and `require_tls` is set.
            plughost.stores.StoreError: Since the host started, the store of revoked tokens could not be read.
        """
        token = _credentials(req, "bearer")
        if not token:
            return None
        self.require_tls(req)
        try:
            claims = self._tokens.verify(token)
            if claims.token in self._revocations:
                msg = "the token was revoked"
                raise InvalidToken(msg)
            return claims
        except InvalidToken:
            raise falcon.HTTPUnauthorized(
                description="The token is invalid or has expired; log in again.",
                challenges=[f'{_BEARER}, error="invalid_token"'],
                headers=NO_STORE,
            ) from None

    def principal(self, req: Request) -> Principal | None:
        """Authenticate a request for any plugin of the host; raises as `claims` does."""
        claims = self.claims(req)
        return None if claims is None else Principal(claims.email, frozenset(claims.roles))

    def require(self, req: Request, *roles: str) -> Claims:
        """Return what the request's token says where it carries one of the roles.

        Raises:
            falcon.HTTPUnauthorized: There is no token, or an invalid one.
            falcon.HTTPForbidden: The token has none of the roles, or `require_tls` is set and this is plain HTTP.
        """
        # Not left to the host's own check of `security`: a Principal doesn't tell when the token ends, which is part of
        # the answer, and what is refused here says `no-store` and follows `require_tls` before it looks at credentials.
        claims = self.some_claims(req)
        if not any(role in claims.roles for role in roles):
            raise falcon.HTTPForbidden(
                description=f"This resource is open to the role {' or '.join(roles)} only.",
                headers=(*NO_STORE, ("WWW-Authenticate", f'{_BEARER}, error="insufficient_scope"')),
            )
        return claims

    def some_claims(self, req: Request) -> Claims:
        """Return what the request's token says, whatever its roles; raises as `require` without one."""
        self.require_tls(req)
        claims = self.claims(req)
        if claims is None:
            raise falcon.HTTPUnauthorized(
                description="This resource needs a token: log in, and send it as `Authorization: Bearer <token>`.",
                challenges=[_BEARER],
                headers=NO_STORE,
            )
        return claims

    def require_tls(self, req: Request) -> None:
        """Refuse plain HTTP where `require_tls` is set.

        Raises:
            falcon.HTTPForbidden: Names the secure port.
        """
        if self._require_tls and req.scheme != "https":
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
    """Return the one answer to every login that fails, so that it doesn't tell which users exist."""
    return falcon.HTTPUnauthorized(
        description="Log in with HTTP Basic: the e-mail address and the password of a user of this library.",
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
