"""What the operations do, for the API description (CONTRACT 3)."""

from __future__ import annotations

from typing import Final

from plughost import Operation, Response
from plughost.http import PROBLEM_DETAILS
from plughost_library_auth.resources import Identity, KeySet, Metadata, ServiceInfo


def _refusal(description: str, **headers: str) -> Response:
    named = {name.replace("_", "-"): meaning for name, meaning in headers.items()}
    return Response(description=description, media_types=(PROBLEM_DETAILS.media_type,), headers=named)


_CHALLENGE: Final = "The scheme to authenticate with, and what was wrong."
_PLAIN_HTTP: Final = "With `require_tls`: the request came over plain HTTP."

LOGIN: Final = Operation(
    id="login",
    summary="Exchange e-mail and password for a token",
    description=(
        "HTTP Basic credentials in, a signed JSON Web Token out, as plain text whatever `Accept` says. Send it to"
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
        401: _refusal(
            "No credentials, malformed or wrong ones; the same whether or not the user exists.",
            WWW_Authenticate=_CHALLENGE,
        ),
        403: _refusal(_PLAIN_HTTP),
        429: _refusal("Too many failed logins.", Retry_After="Seconds until the next try is looked at."),
        503: _refusal("Too many logins at once, or the store is away.", Retry_After="Seconds to wait."),
    },
    produces=(),
    security=("basic",),
)

LOGOUT: Final = Operation(
    id="revokeToken",
    summary="Revoke a token",
    description="The token that is sent is invalid from now on, on every host that shares the store within a second.",
    responses={
        204: Response(description="The token is revoked."),
        401: _refusal("No token, or an invalid or expired one.", WWW_Authenticate=_CHALLENGE),
        403: _refusal(_PLAIN_HTTP),
    },
    security=("bearer",),
)

SECURED: Final = Operation(
    id="getIdentity",
    summary="Tell whose token this is",
    description="Open to the roles `user` and `admin`.",
    responses={
        200: Response(description="Whom the token was given to, its roles, and when it ends.", model=Identity),
        401: _refusal("No token, or an invalid or expired one.", WWW_Authenticate=_CHALLENGE),
        403: _refusal(f"The token has neither role. {_PLAIN_HTTP}", WWW_Authenticate=_CHALLENGE),
    },
    security=("bearer",),
    roles=("user", "admin"),
)

ADMIN: Final = Operation(
    id="getAdminIdentity",
    summary="Tell whose token this is, to administrators",
    description="Open to the role `admin`.",
    responses={
        200: Response(description="Whom the token was given to, its roles, and when it ends.", model=Identity),
        401: _refusal("No token, or an invalid or expired one.", WWW_Authenticate=_CHALLENGE),
        403: _refusal(f"The token lacks the role. {_PLAIN_HTTP}", WWW_Authenticate=_CHALLENGE),
    },
    security=("bearer",),
    roles=("admin",),
)

SERVICE: Final = Operation(
    id="getService",
    summary="Describe the service",
    description="How it was reached, and the absolute addresses of its resources. Plain HTTP leads to the secure port.",
    responses={
        200: Response(description="The description.", model=ServiceInfo),
        308: Response(
            description="Over plain HTTP, where the site has an HTTPS port.",
            model=str,
            media_types=("text/plain",),
            example="The library service is at https://localhost:4443/mylibrary/libraryAuthentification",
            headers={"Location": "The same resource on the secure port."},
        ),
    },
)

METADATA: Final = Operation(
    id="getTokenMetadata",
    summary="Show what verifies tokens",
    description="The issuer and the address of its keys, for libraries and gateways (RFC 8414, OpenID Connect).",
    responses={
        200: Response(
            description="The metadata.", model=Metadata, headers={"Cache-Control": "How long it may be kept."}
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
            headers={"Cache-Control": "How long it may be kept; read it again on a token of an unknown key."},
        )
    },
)
