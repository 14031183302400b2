"""The resources below `/mylibrary` (CONTRACT 3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import falcon
from pydantic import BaseModel, ConfigDict, Field

from plughost.http import Request, secure_url
from plughost.ratelimits import network_of
from plughost.stores import StoreError
from plughost_library_auth.access import (
    NO_STORE,
    PREFIX,
    basic_credentials,
    bearer_principal,
    login_refused,
    service_url,
)
from plughost_library_auth.concurrency import TooBusy

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_library_auth.keyring import KeyRing
    from plughost_library_auth.records import Records
    from plughost_library_auth.revocations import Revocations
    from plughost_library_auth.settings import User
    from plughost_library_auth.throttle import LoginThrottle
    from plughost_library_auth.tokens import Tokens
    from plughost_library_auth.users import UserStore


_ALL_SENT: Final = ConfigDict(json_schema_serialization_defaults_required=True)  # the defaults too
_EXAMPLE: Final = "https://library.example.org/mylibrary"


class Identity(BaseModel):
    """The user of a token."""

    email: str = Field(examples=["user@example.org"])
    roles: list[str] = Field(examples=[["user"]])
    expiresAt: datetime = Field(description="When the token expires, in UTC.")  # noqa: N815 - the name in JSON


class ServiceInfo(BaseModel):
    """How the service was reached, and where its resources are."""

    model_config = _ALL_SENT

    service: Literal["library"] = "library"
    scheme: Literal["http", "https"]
    httpVersion: str = Field(examples=["2", "1.1"])  # noqa: N815 - the name in JSON
    login: str = Field(examples=[f"{_EXAMPLE}/setup/login"])
    secured: str = Field(examples=[f"{_EXAMPLE}/setup/secured"])
    admin: str = Field(examples=[f"{_EXAMPLE}/setup/secured/admin"])
    jwks: str = Field(examples=[f"{_EXAMPLE}/.well-known/jwks.json"])


class KeySet(BaseModel):
    """The public keys that verify tokens: a JWK Set (RFC 7517)."""

    keys: list[dict[str, str]] = Field(
        examples=[[{"kty": "RSA", "kid": "2026-11", "use": "sig", "alg": "RS256", "n": "u1SU1L...", "e": "AQAB"}]]
    )


class Metadata(BaseModel):
    """The metadata by which clients configure token verification (RFC 8414, OpenID Connect Discovery)."""

    model_config = _ALL_SENT

    issuer: str = Field(examples=[_EXAMPLE])
    jwks_uri: str = Field(examples=[f"{_EXAMPLE}/.well-known/jwks.json"])
    token_endpoint: str = Field(examples=[f"{_EXAMPLE}/setup/login"])
    token_endpoint_auth_methods_supported: list[str] = ["client_secret_basic"]
    response_types_supported: list[str] = ["token"]
    grant_types_supported: list[str] = []
    subject_types_supported: list[str] = ["public"]
    id_token_signing_alg_values_supported: list[str] = ["RS256", "ES256", "EdDSA"]
    claims_supported: list[str] = ["iss", "sub", "roles", "iat", "nbf", "exp", "jti"]


@dataclass(frozen=True, kw_only=True)
class Login:
    """Exchanges credentials for a token, and revokes tokens."""

    secret: ClassVar = True

    users: UserStore
    tokens: Tokens
    throttle: LoginThrottle
    records: Records
    revocations: Revocations
    context: PluginContext[Any]

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return a token as plain text, whatever `Accept` says."""
        credentials = basic_credentials(req)
        if credentials is None:
            raise login_refused()
        email, password = credentials
        address = req.remote_addr
        self._refuse_throttled(self.throttle.seconds_to_wait(email, address), req, email)
        user = self._verify(email, password, req)
        if user is None:
            self._refuse_throttled(self.throttle.record_failure(email, address), req, email)
            self._report("refused", req, email)
            raise login_refused()
        # Concurrent guesses may have used up the limit meanwhile. Then even the right password is refused.
        self._refuse_throttled(self.throttle.seconds_to_wait(email, address), req, email)
        self._record_login(user, address)
        resp.text = self.tokens.issue(user.email, [user.role], service_url(req))
        resp.content_type = "text/plain"
        resp.set_headers(NO_STORE)
        self._report("ok", req, user.email)

    def on_delete(self, req: Request, resp: falcon.Response) -> None:
        """Revoke the request's token."""
        bearer = bearer_principal(req)
        self.revocations.revoke(bearer.token_id, int(bearer.expires.timestamp()))
        self.context.emit("revocation")
        self.context.audit("revocation", "ok", who=bearer.name, req=req, token=bearer.token_id)
        resp.status = falcon.HTTP_204
        resp.set_headers(NO_STORE)

    def _report(self, outcome: str, req: Request, email: str) -> None:
        # The audit trail has a pseudonym, never the name: people type passwords into the wrong field.
        self.context.audit("login", outcome, who=email, req=req)
        self.context.emit("login", outcome=outcome)

    def _verify(self, email: str, password: str, req: Request) -> User | None:
        try:
            return self.users.verify(email, password)
        except TooBusy:
            self._report("busy", req, email)
            raise falcon.HTTPServiceUnavailable(
                title="Service Unavailable",
                description="Too many logins are being checked; try again in a second.",
                retry_after=1,
                headers=NO_STORE,
            ) from None
        except StoreError:
            self._refuse_throttled(self.throttle.record_failure(email, req.remote_addr), req, email)
            self._report("undecided", req, email)
            raise

    def _record_login(self, user: User, address: str) -> None:
        """Record the time and address of a login. A failure must not block a user of the settings."""
        try:
            self.records.record_login(user.email, network_of(address))
        except StoreError as error:
            self.context.logger.warning("a login was not kept", reason=str(error))

    def _refuse_throttled(self, seconds: int, req: Request, email: str) -> None:
        if seconds:
            self._report("throttled", req, email)
            wait = "1 second" if seconds == 1 else f"{seconds} seconds"
            raise falcon.HTTPTooManyRequests(
                description=f"Too many failed logins; try again in {wait}.",
                retry_after=seconds,
                headers=NO_STORE,
            )


class Secured:
    """Shows the user of the token. The operation declares the roles that are allowed."""

    secret = True

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the claims of the token."""
        bearer = bearer_principal(req)
        resp.media = Identity(email=bearer.name, roles=sorted(bearer.roles), expiresAt=bearer.expires)
        resp.set_headers(NO_STORE)


class Service:
    """Describes the service to those who reach it over TLS."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the URLs of all resources. Plain HTTP is redirected to HTTPS if the site has such a listener."""
        secure = secure_url(req) if req.scheme != "https" else None
        if secure is not None:
            resp.status = 308
            resp.location = secure
            resp.text = "This resource is on the secure port."
            resp.content_type = "text/plain"
            return
        base = f"{req.prefix}{PREFIX}"
        resp.media = ServiceInfo(
            scheme="https" if req.scheme == "https" else "http",
            httpVersion=_http_version(req),
            login=f"{base}/setup/login",
            secured=f"{base}/setup/secured",
            admin=f"{base}/setup/secured/admin",
            jwks=f"{base}/.well-known/jwks.json",
        )


class Discovery:
    """Shows the issuer of tokens and the URL of its keys."""

    def __init__(self, issuer: str | None) -> None:
        self._issuer = issuer

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the metadata. Its URLs come from the settings, never from the request."""
        base = service_url(req)
        issuer = self._issuer or base
        if issuer.startswith(("https://", "http://")):
            base = issuer.rstrip("/")
        keys = f"{base}/.well-known/jwks.json"
        resp.media = Metadata(issuer=issuer, jwks_uri=keys, token_endpoint=f"{base}/setup/login")
        resp.set_header("Cache-Control", "public, max-age=300")


class PublicKeys:
    """Shows the keys that verify tokens."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the JWK Set. A client reads it again when it gets a token with an unknown key."""
        resp.media = KeySet(keys=[key.jwk() for key in self._keys.public_keys()])
        resp.set_header("Cache-Control", "public, max-age=300")


def _http_version(req: Request) -> str:
    """Return `1.1`, or `2` without a minor version, which HTTP/2 doesn't have (RFC 9113, 3.1)."""
    version = str(req.env.get("SERVER_PROTOCOL", "")).partition("/")[2]
    return version.removesuffix(".0") if version.startswith(("2", "3")) else version
