"""Tokens: signed, and verified back into what they claim."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import jwt
from jwt.utils import base64url_decode, base64url_encode

if TYPE_CHECKING:
    from plughost_library_auth.keyring import KeyRing

# Three parts of the base64url alphabet, none empty: no unsigned token, and none of the junk that decoders skip.
_COMPACT: Final = re.compile(r"[\w-]+\.[\w-]+\.(?P<signature>[\w-]+)", re.ASCII)
_LONGEST: Final = 8192
_REQUIRED: Final = ["exp", "iat", "sub", "iss"]


class InvalidToken(Exception):  # noqa: N818 - it is RFC 6750's name for it, `invalid_token`
    """A token that is not one of ours, or no longer; the message says why, for the log only."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says.

    Attributes:
        email: Whom it was given to.
        roles: The roles it carries.
        expires: When it ends, in UTC.
    """

    email: str
    roles: tuple[str, ...]
    expires: datetime


class Tokens:
    """Issues and verifies the tokens of one issuer."""

    def __init__(self, keys: KeyRing, *, issuer: str, lifetime: int) -> None:
        """Take the keys to sign and verify with.

        Args:
            keys: The signing keys.
            issuer: The claim `iss`.
            lifetime: Seconds that a new token is good for.
        """
        self._keys = keys
        self._issuer = issuer
        self._lifetime = lifetime

    def issue(self, email: str, roles: Iterable[str]) -> str:
        """Return a new token for a user (RFC 7519, signed as RFC 7515's compact form)."""
        key = self._keys.signing_key()
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "sub": email,
            "roles": list(roles),
            "iat": now,
            "nbf": now,
            "exp": now + self._lifetime,
            "jti": uuid.uuid4().hex,
        }
        return jwt.encode(claims, key.private, algorithm=key.algorithm, headers={"kid": key.kid})

    def verify(self, token: str) -> Claims:
        """Return what a token says, once its signature and its claims are found good.

        Raises:
            InvalidToken: It is malformed, forged, expired, not yet valid, of another issuer or of an unknown key.
        """
        match = _COMPACT.fullmatch(token) if len(token) <= _LONGEST else None
        if match is None:
            msg = "not a compact JWS"
            raise InvalidToken(msg)
        try:
            _refuse_spare_bits(match["signature"])
            return _claims(self._payload(token))
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidToken(str(error)) from error

    def _payload(self, token: str) -> dict[str, Any]:
        kid = jwt.get_unverified_header(token).get("kid")
        key = self._keys.verification_key(kid) if isinstance(kid, str) else None
        if key is None:
            msg = "unknown key"
            raise InvalidToken(msg)
        # The algorithm comes from the key, never from the token (RFC 8725 section 3.1).
        return jwt.decode(
            token, key.public, algorithms=[key.algorithm], issuer=self._issuer, options={"require": _REQUIRED}
        )


def _refuse_spare_bits(signature: str) -> None:
    """Raise on a last character whose unused bits are set: two spellings of one token would both be valid."""
    if base64url_encode(base64url_decode(signature)).decode() != signature:
        msg = "the signature is not in its canonical encoding"
        raise ValueError(msg)


def _claims(payload: dict[str, Any]) -> Claims:
    roles = payload.get("roles")
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        msg = "the claim roles is not an array of strings"
        raise InvalidToken(msg)
    return Claims(payload["sub"], tuple(roles), datetime.fromtimestamp(payload["exp"], UTC))
