"""Signing keys: generation, storage format and public form."""

from __future__ import annotations

import hashlib
import json
import time
from functools import cached_property
from typing import Annotated, Any, Final, Self

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.utils import base64url_encode
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from plughost_library_auth.settings import Algorithm  # noqa: TC001 - pydantic reads it at run time

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_RSA_BITS: Final = 2048  # the minimum of RFC 7518 section 3.3, enough for tokens that are valid for minutes
# Seconds: a host may sign with a key shortly after another process retired it.
_GRACE: Final = 60


def _load(pem: Any) -> Any:
    return serialization.load_pem_private_key(pem.encode(), password=None) if isinstance(pem, str) else pem


def _dump(private: PrivateKey) -> str:
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return private.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()


class SigningKey(BaseModel):
    """A key that signs tokens, or did so until it was retired. The file has these fields, with the key as PEM.

    Attributes:
        kid: The key id in a token's header: its RFC 7638 thumbprint.
        algorithm: The only algorithm that it is used with.
        created: When it was created, in seconds since the epoch.
        lifetime: The longest lifetime of its tokens, in seconds.
        retired: When it was retired, in seconds since the epoch; None for the signing key.
        private_key: The key that signs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kid: str = Field(min_length=1)
    algorithm: Algorithm
    created: int
    lifetime: int
    retired: int | None
    private_key: Annotated[PrivateKey, PlainValidator(_load), PlainSerializer(_dump), Field(repr=False)]

    @model_validator(mode="after")
    def _check_algorithm(self) -> Self:
        if not _matches_algorithm(self.private_key, self.algorithm):
            raise ValueError(f"key {self.kid} is not one for {self.algorithm}")
        return self

    @classmethod
    def generate(cls, algorithm: Algorithm, lifetime: int) -> Self:
        """Generate a new key for tokens with a lifetime in seconds."""
        private = _generate(algorithm)
        # RFC 7638: SHA-256 over the required members in lexical order.
        canonical = json.dumps(_public_jwk(private.public_key(), algorithm), separators=(",", ":"), sort_keys=True)
        return cls(
            kid=base64url_encode(hashlib.sha256(canonical.encode()).digest()).decode(),
            algorithm=algorithm,
            created=int(time.time()),
            lifetime=lifetime,
            retired=None,
            private_key=private,
        )

    def retire(self) -> SigningKey:
        """Return a copy that is retired now."""
        return self.model_copy(update={"retired": int(time.time())})

    @cached_property
    def public(self) -> PublicKey:
        """The key that verifies."""
        return self.private_key.public_key()

    @property
    def verifies_until(self) -> float:
        """When its last token expires, in seconds since the epoch; infinite until the key is retired."""
        return float("inf") if self.retired is None else self.retired + self.lifetime + _GRACE

    def jwk(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key (RFC 7517)."""
        return {**_public_jwk(self.public, self.algorithm), "kid": self.kid, "use": "sig", "alg": self.algorithm}


def _generate(algorithm: Algorithm) -> PrivateKey:
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()


def _matches_algorithm(private: object, algorithm: Algorithm) -> bool:
    match algorithm:
        case "RS256":
            return isinstance(private, rsa.RSAPrivateKey) and private.key_size >= _RSA_BITS
        case "ES256":
            return isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1)
        case "EdDSA":
            return isinstance(private, ed25519.Ed25519PrivateKey)


def _public_jwk(public: PublicKey, algorithm: Algorithm) -> dict[str, str]:
    """Return only the members that RFC 7518 section 6 and RFC 8037 require of a public key."""
    members: dict[str, str] = jwt.get_algorithm_by_name(algorithm).to_jwk(public, as_dict=True)
    return {name: members[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in members}
