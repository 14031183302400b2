"""The resources below `/mylibrary` (CONTRACT 3)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import falcon
from pydantic import BaseModel, Field

from plughost.http import Request, secure_url
from plughost_library_auth.access import NO_STORE, Guard, basic_credentials, login_refused

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_library_auth.keyring import KeyRing
    from plughost_library_auth.throttle import LoginThrottle
    from plughost_library_auth.tokens import Tokens
    from plughost_library_auth.users import UserStore


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
    login: str
    secured: str
    admin: str
    jwks: str


class KeySet(BaseModel):
    """The public keys that verify tokens: a JWK Set (RFC 7517)."""

    keys: list[dict[str, str]]


class Login:
    """Exchanges credentials for a token."""

    def __init__(
        self,
        users: UserStore,
        tokens: Tokens,
        throttle: LoginThrottle,
        guard: Guard,
        context: PluginContext[Any],
    ) -> None:
        """Take who may log in, what makes their tokens, what counts failures, and the context to tell of logins."""
        self._users = users
        self._tokens = tokens
        self._throttle = throttle
        self._guard = guard
        self._context = context

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with a token as plain text, whatever Accept says."""
        self._guard.require_tls(req)
        credentials = basic_credentials(req)
        if credentials is None:
            raise login_refused()
        email, password = credentials
        address = req.remote_addr
        self._refuse_throttled(self._throttle.wait(email, address), address)
        user = self._users.verify(email, password)
        if user is None:
            self._refuse_throttled(self._throttle.failed(email, address), address)
            # Without the name: people type passwords into the wrong field.
            self._context.logger.info("login refused", address=address, reason="wrong credentials")
            self._context.emit("login", outcome="refused")
            raise login_refused()
        # Guesses that ran beside this one may have used up the limit: a right one among them gains nothing.
        self._refuse_throttled(self._throttle.wait(email, address), address)
        resp.text = self._tokens.issue(user.email, [user.role])
        resp.content_type = "text/plain"
        resp.set_headers(NO_STORE)
        self._context.logger.info("login", address=address, user=user.email)
        self._context.emit("login", outcome="ok")

    def _refuse_throttled(self, seconds: int, address: str) -> None:
        if seconds:
            self._context.logger.info("login refused", address=address, reason="too many failures")
            self._context.emit("login", outcome="throttled")
            raise falcon.HTTPTooManyRequests(
                description=f"Too many failed logins; try again in {seconds} seconds.",
                retry_after=seconds,
                headers=NO_STORE,
            )


class Secured:
    """Open to tokens with one of some roles; tells whose token it is."""

    def __init__(self, guard: Guard, *roles: str) -> None:
        """Take what checks tokens, and the roles that are let in."""
        self._guard = guard
        self._roles = roles

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with what the token says."""
        claims = self._guard.require(req, *self._roles)
        identity = Identity(email=claims.email, roles=list(claims.roles), expiresAt=claims.expires)
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
