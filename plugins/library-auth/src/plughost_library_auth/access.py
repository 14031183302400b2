"""Authentication: read credentials and bearer tokens from a request, or refuse it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import falcon

from plughost.http import Request, secure_url
from plughost_library_auth.tokens import Bearer, InvalidToken, Tokens

if TYPE_CHECKING:
    from plughost_library_auth.revocations import Revocations

REALM: Final = "mylibrary"
PREFIX: Final = "/mylibrary"
# Pairs, not a dict: Falcon's errors would add their challenge to the dict.
NO_STORE: Final = (("Cache-Control", "no-store"),)

_BASIC: Final = f'Basic realm="{REALM}", charset="UTF-8"'
_BEARER: Final = f'Bearer realm="{REALM}"'


class Authenticator:
    """Authenticates requests by bearer token (RFC 6750), for every plugin of the host."""

    def __init__(self, tokens: Tokens, revocations: Revocations, *, require_tls: bool) -> None:
        """Take the token verifier, the revoked tokens, and whether plain HTTP is refused."""
        self._tokens = tokens
        self._revocations = revocations
        self._require_tls = require_tls

    def __call__(self, req: Request) -> Bearer | None:
        """Return the principal of the request's token, or None without a token.

        Raises:
            falcon.HTTPUnauthorized: The token is invalid.
            falcon.HTTPForbidden: `require_tls` is set, and the request came over plain HTTP.
            plughost.stores.StoreError: The revoked tokens could not be read since the host started.
        """
        token = _credentials(req, "bearer")
        if not token:
            return None
        if self._require_tls:
            refuse_plain_http(req)
        try:
            bearer = self._tokens.verify(token)
            if bearer.token_id in self._revocations:
                raise InvalidToken("the token was revoked")
        except InvalidToken:
            raise falcon.HTTPUnauthorized(
                description="The token is invalid or has expired; log in again.",
                challenges=[f'{_BEARER}, error="invalid_token"'],
                headers=NO_STORE,
            ) from None
        return bearer


def bearer_principal(req: Request) -> Bearer:
    """Return the principal of a request to an operation with the security `bearer`."""
    assert isinstance(req.principal, Bearer), "this plugin is the host's authenticator"
    return req.principal


class SecureOnly:
    """Middleware that refuses plain HTTP at resources that take credentials or tokens, before any are requested."""

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Refuse plain HTTP if the resource has a true attribute `secret`; raises as `refuse_plain_http`."""
        if getattr(resource, "secret", False):
            refuse_plain_http(req)


def refuse_plain_http(req: Request) -> None:
    """Refuse a request that did not come over TLS.

    Raises:
        falcon.HTTPForbidden: Names the secure port.
    """
    if req.scheme != "https":
        url = secure_url(req)
        hint = "this site has no HTTPS port, so its settings let nobody in"
        if url is not None:
            hint = f"use HTTPS on port {urlsplit(url).port or 443}"
        raise falcon.HTTPForbidden(
            description=f"Credentials and tokens are refused over plain HTTP; {hint}.", headers=NO_STORE
        )


def basic_credentials(req: Request) -> tuple[str, str] | None:
    """Return e-mail and password of HTTP Basic credentials (RFC 7617, UTF-8), or None if malformed or absent."""
    try:
        decoded = base64.b64decode(_credentials(req, "basic"), validate=True).decode()
    except ValueError:  # not ASCII, not base64, not UTF-8
        return None
    email, colon, password = decoded.partition(":")
    return (email, password) if colon else None


def login_refused() -> falcon.HTTPUnauthorized:
    """Return the error of every failed login. It is always the same, so it doesn't reveal which users exist.

    The host answers a request without credentials with the same text.
    """
    return falcon.HTTPUnauthorized(
        description="This resource needs valid credentials: basic.",
        challenges=[_BASIC],
        headers=NO_STORE,
    )


def service_url(req: Request) -> str:
    """Return the service's URL on localhost, on the site's HTTPS port if it has one.

    It doesn't depend on the header `Host`, which a client can forge.
    """
    secure = secure_url(req)
    scheme, port = ("http", int(req.env["SERVER_PORT"])) if secure is None else ("https", urlsplit(secure).port or 443)
    host = "localhost" if port == {"http": 80, "https": 443}[scheme] else f"localhost:{port}"
    return f"{scheme}://{host}{PREFIX}"


def _credentials(req: Request, scheme: str) -> str:
    """Return the credentials of a scheme, case-insensitive (RFC 9110, 11.1); empty if another scheme was sent.

    Repeated headers arrive joined by commas, so their credentials are malformed, as they should be.
    """
    name, _, credentials = (req.auth or "").partition(" ")
    return credentials.strip(" ") if name.lower() == scheme else ""
