"""Issue and verify signed tokens."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import jwt
from jwt.utils import base64url_decode, base64url_encode

from plughost import Principal

if TYPE_CHECKING:
    from plughost_library_auth.keyring import KeyRing
    from plughost_library_auth.keys import SigningKey

# Three non-empty base64url parts. This excludes unsigned tokens and characters that decoders ignore.
_COMPACT: Final = re.compile(r"[\w-]+\.[\w-]+\.(?P<signature>[\w-]+)", re.ASCII)
_MAX_LENGTH: Final = 8192
_REQUIRED: Final = ["exp", "iat", "sub", "iss"]
_TYPE: Final = "at+jwt"  # RFC 9068, 2.1
_TYPES: Final = frozenset({_TYPE, f"application/{_TYPE}", "jwt"})  # earlier versions wrote the last
_CLIENT: Final = "mylibrary"  # all clients log in the same way, so they have one id
_LEEWAY: Final = 60  # seconds that the issuing host's clock can be ahead
_REMEMBERED_TOKENS: Final = 4096


class InvalidToken(Exception):  # noqa: N818 - named like RFC 6750's `invalid_token`
    """A forged, malformed, expired or revoked token. The message says why, for the log only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer(Principal):
    """The principal of a verified token.

    Attributes:
        expires: When the token expires, in UTC.
        token_id: The claim `jti`, by which the token is revoked.
    """

    expires: datetime
    token_id: str


class Tokens:
    """Issues and verifies the tokens of one issuer.

    A token's signature is verified once, while its key stays the same. It takes several times as long as the rest of a
    small request. Invalid tokens are not remembered.
    """

    def __init__(self, keys: KeyRing, *, issuer: str | None, lifetime: int, audience: str | None = None) -> None:
        """Take the keys that sign and verify.

        Args:
            keys: The signing keys.
            issuer: The claim `iss`. With None, each token names where it was issued, and `iss` isn't checked.
            lifetime: Seconds that a new token is valid.
            audience: The claim `aud`, or None.
        """
        self._keys = keys
        self._issuer = issuer
        self._lifetime = lifetime
        self._audience = audience
        self._read = lru_cache(maxsize=_REMEMBERED_TOKENS)(self._verify_signature)

    def issue(self, email: str, roles: Iterable[str], default_issuer: str = "") -> str:
        """Return a new token for a user (RFC 7519, in the compact serialization of RFC 7515).

        Args:
            email: The user's e-mail address.
            roles: The user's roles.
            default_issuer: The claim `iss` if no issuer is set.
        """
        key = self._keys.signing_key()
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self._issuer or default_issuer,
            "sub": email,
            "roles": list(roles),
            "iat": now,
            "nbf": now,
            "exp": now + self._lifetime,
            "jti": uuid.uuid4().hex,
        }
        if self._audience is not None:
            claims |= {"aud": self._audience, "client_id": _CLIENT}  # RFC 9068, 2.2 requires both
        return jwt.encode(claims, key.private_key, algorithm=key.algorithm, headers={"kid": key.kid, "typ": _TYPE})

    def verify(self, token: str) -> Bearer:
        """Verify a token's signature and claims, and return its principal.

        Raises:
            InvalidToken: It is malformed, forged, expired, not yet valid, of another issuer or of an unknown key.
        """
        try:
            key, bearer, issued_at = self._read(token)
            if self._keys.verification_key(key.kid) is not key:  # it was retired, or its file has changed
                self._read.cache_clear()
                _, bearer, issued_at = self._read(token)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise InvalidToken(str(error)) from error
        now = time.time()
        if bearer.expires.timestamp() <= now:  # without leeway: it would prolong the token
            raise InvalidToken("the token has expired")
        if issued_at > now + _LEEWAY:  # the clock was set back since
            raise InvalidToken("the token is not yet valid")
        return bearer

    def _verify_signature(self, token: str) -> tuple[SigningKey, Bearer, int]:
        match = _COMPACT.fullmatch(token) if len(token) <= _MAX_LENGTH else None
        if match is None:
            raise InvalidToken("not a compact JWS")
        _require_canonical(match["signature"])
        header = jwt.get_unverified_header(token)
        if str(header.get("typ", _TYPE)).lower() not in _TYPES:
            raise InvalidToken("not an access token")
        kid = header.get("kid")
        key = self._keys.verification_key(kid) if isinstance(kid, str) else None
        if key is None:
            raise InvalidToken("unknown key")
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
        return key, _bearer(payload, token), int(payload["iat"])


def _require_canonical(signature: str) -> None:
    """Refuse set spare bits in the last character: otherwise, several spellings of one token would be valid."""
    if base64url_encode(base64url_decode(signature)).decode() != signature:
        raise ValueError("the signature is not in its canonical encoding")


def _bearer(payload: dict[str, Any], token: str) -> Bearer:
    roles = payload.get("roles")
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise InvalidToken("the claim roles is not an array of strings")
    token_id = payload.get("jti") or hashlib.sha256(token.encode()).hexdigest()
    expires = datetime.fromtimestamp(payload["exp"], UTC)
    return Bearer(payload["sub"], frozenset(roles), expires=expires, token_id=token_id)
