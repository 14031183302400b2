"""The resources below `/mylibrary` (CONTRACT 3)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import falcon
from pydantic import BaseModel, Field

from plughost.http import Request, secure_url
from plughost.ratelimits import network_of
from plughost.stores import StoreError
from plughost_library_auth.access import NO_STORE, base_of, basic_credentials, bearer_of, login_refused
from plughost_library_auth.turns import TooBusy

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_library_auth.keyring import KeyRing
    from plughost_library_auth.records import Records
    from plughost_library_auth.revocations import Revocations
    from plughost_library_auth.settings import User
    from plughost_library_auth.throttle import LoginThrottle
    from plughost_library_auth.tokens import Tokens
    from plughost_library_auth.users import UserStore


_EXAMPLE: Final = "https://library.example.org/mylibrary"


class Identity(BaseModel):
    """Whom a token was given to."""

    email: str = Field(examples=["user@example.org"])
    roles: list[str] = Field(examples=[["user"]])
    expiresAt: datetime = Field(description="When the token ends, in UTC.")  # noqa: N815 - the name on the wire


class ServiceInfo(BaseModel):
    """How the service was reached, and where its resources are."""

    service: Literal["library"] = "library"
    scheme: Literal["http", "https"]
    httpVersion: str = Field(examples=["2", "1.1"])  # noqa: N815 - the name on the wire
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
    """What clients need to verify tokens without a setting made by hand (RFC 8414, OpenID Connect Discovery)."""

    issuer: str = Field(examples=[_EXAMPLE])
    jwks_uri: str = Field(examples=[f"{_EXAMPLE}/.well-known/jwks.json"])
    token_endpoint: str = Field(examples=[f"{_EXAMPLE}/setup/login"])
    token_endpoint_auth_methods_supported: list[str] = ["client_secret_basic"]
    response_types_supported: list[str] = ["token"]
    grant_types_supported: list[str] = []
    subject_types_supported: list[str] = ["public"]
    id_token_signing_alg_values_supported: list[str] = ["RS256", "ES256", "EdDSA"]
    claims_supported: list[str] = ["iss", "sub", "roles", "iat", "nbf", "exp", "jti"]


class Login:
    """Exchanges credentials for a token, and takes a token back."""

    secret = True

    def __init__(
        self,
        *,
        users: UserStore,
        tokens: Tokens,
        throttle: LoginThrottle,
        records: Records,
        revocations: Revocations,
        context: PluginContext[Any],
    ) -> None:
        """Take who may log in, what makes their tokens, what counts failures, and the context to tell of logins."""
        self._users = users
        self._tokens = tokens
        self._throttle = throttle
        self._records = records
        self._revocations = revocations
        self._context = context

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with a token as plain text, whatever Accept says."""
        credentials = basic_credentials(req)
        if credentials is None:
            raise login_refused()
        email, password = credentials
        address = req.remote_addr
        self._refuse_throttled(self._throttle.wait(email, address), req, email)
        user = self._verify(email, password, req)
        if user is None:
            self._refuse_throttled(self._throttle.failed(email, address), req, email)
            self._tell("refused", req, email)
            raise login_refused()
        # Guesses that ran beside this one may have used up the limit: a right one among them gains nothing.
        self._refuse_throttled(self._throttle.wait(email, address), req, email)
        self._note_login(user, address)
        resp.text = self._tokens.issue(user.email, [user.role], base_of(req))
        resp.content_type = "text/plain"
        resp.set_headers(NO_STORE)
        self._tell("ok", req, user.email)

    def on_delete(self, req: Request, resp: falcon.Response) -> None:
        """Revoke the request's token until it expires."""
        bearer = bearer_of(req)
        self._revocations.revoke(bearer.token, int(bearer.expires.timestamp()))
        self._context.emit("revocation")
        self._context.audit("revocation", "ok", who=bearer.name, req=req, token=bearer.token)
        resp.status = falcon.HTTP_204
        resp.set_headers(NO_STORE)

    def _tell(self, outcome: str, req: Request, email: str) -> None:
        # Never the name itself: people type passwords into the wrong field.
        self._context.audit("login", outcome, who=email, req=req)
        self._context.emit("login", outcome=outcome)

    def _verify(self, email: str, password: str, req: Request) -> User | None:
        try:
            return self._users.verify(email, password)
        except TooBusy:
            self._tell("busy", req, email)
            raise falcon.HTTPServiceUnavailable(
                title="Service Unavailable",
                description="Too many logins are being checked; try again in a second.",
                retry_after=1,
                headers=NO_STORE,
            ) from None
        except StoreError:
            self._refuse_throttled(self._throttle.failed(email, req.remote_addr), req, email)
            self._tell("undecided", req, email)
            raise

    def _note_login(self, user: User, address: str) -> None:
        """Keep when the user got in, and from where: which must not stop one whom the settings let in."""
        try:
            self._records.note_login(user.email, network_of(address))
        except StoreError as error:
            self._context.logger.warning("a login was not kept", reason=str(error))

    def _refuse_throttled(self, seconds: int, req: Request, email: str) -> None:
        if seconds:
            self._tell("throttled", req, email)
            wait = "1 second" if seconds == 1 else f"{seconds} seconds"
            raise falcon.HTTPTooManyRequests(
                description=f"Too many failed logins; try again in {wait}.",
                retry_after=seconds,
                headers=NO_STORE,
            )


class Secured:
    """Tells whose token it is; its operation declares which roles are let in."""

    secret = True

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with what the token says."""
        bearer = bearer_of(req)
        identity = Identity(email=bearer.name, roles=sorted(bearer.roles), expiresAt=bearer.expires)
        resp.media = identity.model_dump(mode="json")
        resp.set_headers(NO_STORE)


class Service:
    """Describes the service to those who reach it over TLS."""

    def __init__(self, prefix: str) -> None:
        """Take the prefix that the service is mounted under."""
        self._prefix = prefix

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with where everything is; over plain HTTP, with the way to the secure port.

        A site without an HTTPS listener has no such port: there the answer is given over plain HTTP.
        """
        if req.scheme != "https":
            secure = secure_url(req)
            if secure is not None:
                resp.status = 308
                resp.location = secure
                resp.text = "This resource is on the secure port."
                resp.content_type = "text/plain"
                return
        base = f"{req.prefix}{self._prefix}"
        info = ServiceInfo(
            scheme="https" if req.scheme == "https" else "http",
            httpVersion=_http_version(req),
            login=f"{base}/setup/login",
            secured=f"{base}/setup/secured",
            admin=f"{base}/setup/secured/admin",
            jwks=f"{base}/.well-known/jwks.json",
        )
        resp.media = info.model_dump(mode="json")


class Discovery:
    """Shows where tokens come from, and where the keys are that verify them."""

    def __init__(self, issuer: str | None) -> None:
        """Take the setting `issuer`."""
        self._issuer = issuer

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with the metadata; its addresses come from the settings, never from the request."""
        base = base_of(req)
        issuer = self._issuer or base
        if issuer.startswith(("https://", "http://")):
            base = issuer.rstrip("/")
        metadata = Metadata(
            issuer=issuer, jwks_uri=f"{base}/.well-known/jwks.json", token_endpoint=f"{base}/setup/login"
        )
        resp.media = metadata.model_dump(mode="json")
        resp.set_header("Cache-Control", "public, max-age=300")


class PublicKeys:
    """Shows the keys that verify tokens."""

    def __init__(self, keys: KeyRing) -> None:
        """Take the signing keys."""
        self._keys = keys

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with a JWK Set; a client that meets a token of an unknown key reads it again."""
        resp.media = KeySet(keys=[key.jwk() for key in self._keys.public_keys()]).model_dump(mode="json")
        resp.set_header("Cache-Control", "public, max-age=300")


def _http_version(req: Request) -> str:
    """Return `1.1`, or `2` without a minor version, which HTTP/2 doesn't have (RFC 9113, 3.1)."""
    version = str(req.env.get("SERVER_PROTOCOL", "")).partition("/")[2]
    return version.removesuffix(".0") if version.startswith(("2", "3")) else version
