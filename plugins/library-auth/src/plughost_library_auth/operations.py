"""The operations for the API description (CONTRACT 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from plughost import Operation, Response
from plughost_library_auth.resources import Identity, KeySet, Metadata, ServiceInfo

_CHALLENGE: Final = {"WWW-Authenticate": "The scheme to authenticate with, and what was wrong."}
_PLAIN_HTTP: Final = "With `require_tls`: the request came over plain HTTP."
_INVALID_TOKEN: Final = Response(description="No token, or an invalid or expired one.")

LOGIN: Final = Operation(
    id="login",
    summary="Exchange e-mail and password for a token",
    description=(
        "Takes HTTP Basic credentials and returns a signed JSON Web Token, always as plain text. Send it to"
        " the other resources as `Authorization: Bearer <token>` until it expires."
    ),
    responses={
        200: Response(
            description="The token and nothing else.",
            model=str,
            media_types=("text/plain",),
            headers={"Cache-Control": "Always `no-store`."},
            example="eyJhbGciOiJSUzI1NiIsImtpZCI6IjIwMjYtMTEifQ.eyJzdWIiOiJ1c2VyQGV4YW1wbGUub3JnIn0.c2lnbmF0dXJl",
        ),
        401: Response(
            description="The credentials are missing, malformed or wrong. Whether the user exists makes no difference."
        ),
        403: Response(description=_PLAIN_HTTP),
        429: Response(description="Too many failed logins."),
        503: Response(description="Too many logins at once, or the store is away."),
    },
    produces=(),
    security=("basic",),
)

LOGOUT: Final = Operation(
    id="revokeToken",
    summary="Revoke a token",
    description="Revokes the token of the request. All hosts that share the store refuse it within a second.",
    responses={
        204: Response(description="The token is revoked."),
        401: _INVALID_TOKEN,
        403: Response(description=_PLAIN_HTTP),
    },
    security=("bearer",),
)

SECURED: Final = Operation(
    id="getIdentity",
    summary="Show the user of the token",
    description="Open to the roles `user` and `admin`.",
    responses={
        200: Response(description="The token's user, roles and expiry.", model=Identity),
        401: _INVALID_TOKEN,
        403: Response(description=f"The token has neither role. {_PLAIN_HTTP}", headers=_CHALLENGE),
    },
    security=("bearer",),
    roles=("user", "admin"),
)

ADMIN: Final = replace(
    SECURED,
    id="getAdminIdentity",
    summary="Show the user of the token, for administrators",
    description="Open to the role `admin`.",
    responses={
        **SECURED.responses,
        403: Response(description=f"The token lacks the role. {_PLAIN_HTTP}", headers=_CHALLENGE),
    },
    roles=("admin",),
)

SERVICE: Final = Operation(
    id="getService",
    summary="Describe the service",
    description="How it was reached, and the absolute URLs of its resources. Plain HTTP is redirected to HTTPS.",
    responses={
        200: Response(description="The description.", model=ServiceInfo),
        308: Response(
            description="Over plain HTTP, where the site has an HTTPS port.",
            model=str,
            media_types=("text/plain",),
            example="This resource is on the secure port.",
            headers={"Location": "The same resource on the secure port."},
        ),
    },
)

METADATA: Final = Operation(
    id="getTokenMetadata",
    summary="Show the metadata for verifying tokens",
    description="The issuer and the address of its keys, for libraries and gateways (RFC 8414, OpenID Connect).",
    responses={
        200: Response(
            description="The metadata.", model=Metadata, headers={"Cache-Control": "How long it may be cached."}
        )
    },
)

PUBLIC_KEYS: Final = Operation(
    id="getPublicKeys",
    summary="Show the public keys that verify tokens",
    description="Retired keys stay until the last of their tokens has expired.",
    responses={
        200: Response(
            description="A JWK Set (RFC 7517).",
            model=KeySet,
            headers={"Cache-Control": "How long it may be cached; read it again for a token with an unknown key."},
        )
    },
)
