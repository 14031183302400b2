"""Tokens: signed, and verified back into what they claim."""

from __future__ import annotations

import hashlib
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
_TYPE: Final = "at+jwt"  # RFC 9068, 2.1
_TYPES: Final = frozenset({_TYPE, f"application/{_TYPE}", "jwt"})  # the last is what earlier versions wrote
_CLIENT: Final = "mylibrary"  # every client logs in alike, so they are one
_LEEWAY: Final = 60  # seconds that the clock of the host that issued a token may be ahead


class InvalidToken(Exception):  # noqa: N818 - it is RFC 6750's name for it, `invalid_token`
    """A token that is not one of ours, or no longer; the message says why, for the log only."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says.

    Attributes:
        email: Whom it was given to.
        roles: The roles it carries.
        expires: When it ends, in UTC.
        token: What to revoke it by: its `jti`.
    """

    email: str
    roles: tuple[str, ...]
    expires: datetime
    token: str


class Tokens:
    """Issues and verifies the tokens of one issuer."""

    def __init__(self, keys: KeyRing, *, issuer: str | None, lifetime: int, audience: str | None = None) -> None:
        """Take the keys to sign and verify with.

        Args:
            keys: The signing keys.
            issuer: The claim `iss`. None: each token says where it was issued, and what one of our keys signed is
                taken whatever it says.
            lifetime: Seconds that a new token is good for.
            audience: The claim `aud`; None for none.
        """
        self._keys = keys
        self._issuer = issuer
        self._lifetime = lifetime
        self._audience = audience

    def issue(self, email: str, roles: Iterable[str], place: str = "") -> str:
        """Return a new token for a user (RFC 7519, signed as RFC 7515's compact form).

        Args:
            email: Whom it is for.
            roles: What it lets that user do.
            place: Where it is issued: the claim `iss` unless there is one for all tokens.
        """
        key = self._keys.signing_key()
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self._issuer or place,
            "sub": email,
            "roles": list(roles),
            "iat": now,
            "nbf": now,
            "exp": now + self._lifetime,
            "jti": uuid.uuid4().hex,
        }
        if self._audience is not None:
            claims |= {"aud": self._audience, "client_id": _CLIENT}  # RFC 9068, 2.2 wants both
        return jwt.encode(claims, key.private, algorithm=key.algorithm, headers={"kid": key.kid, "typ": _TYPE})

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
            return _claims(self._payload(token), token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidToken(str(error)) from error

    def _payload(self, token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        if str(header.get("typ", _TYPE)).lower() not in _TYPES:
            msg = "not an access token"
            raise InvalidToken(msg)
        kid = header.get("kid")
        key = self._keys.verification_key(kid) if isinstance(kid, str) else None
        if key is None:
            msg = "unknown key"
            raise InvalidToken(msg)
        # The algorithm comes from the key, never from the token (RFC 8725 section 3.1).
        payload: dict[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=[key.algorithm],
            issuer=self._issuer,
            audience=self._audience,
            leeway=_LEEWAY,
            options={"require": _REQUIRED},
        )
        if int(payload["exp"]) <= time.time():  # its end is no matter of clocks that differ
            msg = "the token has expired"
            raise InvalidToken(msg)
        return payload


def _refuse_spare_bits(signature: str) -> None:
    """Raise on a last character whose unused bits are set: two spellings of one token would both be valid."""
    if base64url_encode(base64url_decode(signature)).decode() != signature:
        msg = "the signature is not in its canonical encoding"
        raise ValueError(msg)


def _claims(payload: dict[str, Any], token: str) -> Claims:
    roles = payload.get("roles")
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        msg = "the claim roles is not an array of strings"
        raise InvalidToken(msg)
    name = payload.get("jti") or hashlib.sha256(token.encode()).hexdigest()
    return Claims(payload["sub"], tuple(roles), datetime.fromtimestamp(payload["exp"], UTC), name)
