"""Signing keys: generation, storage format and public form."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import BaseModel, ConfigDict, Field

from plughost_library_auth.settings import Algorithm  # noqa: TC001 - pydantic reads it at run time

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_RSA_BITS: Final = 2048  # the minimum of RFC 7518 section 3.3, enough for tokens that are valid for minutes
# Seconds: a host may sign with a key shortly after another process retired it.
_GRACE: Final = 60


class KeyRecord(BaseModel):
    """A signing key as stored in the file."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    kid: Annotated[str, Field(min_length=1)]
    algorithm: Algorithm
    created: int
    lifetime: int
    retired: int | None
    private_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key that signs tokens, or did so until it was retired.

    Attributes:
        kid: The key id in a token's header: its RFC 7638 thumbprint.
        algorithm: The only algorithm that it is used with.
        created: When it was created, in seconds since the epoch.
        lifetime: The longest lifetime of its tokens, in seconds.
        retired: When it was retired, in seconds since the epoch; None for the signing key.
        private: The key that signs.
        public: The key that verifies.
    """

    kid: str
    algorithm: Algorithm
    created: int
    lifetime: int
    retired: int | None
    private: PrivateKey = field(repr=False)
    public: PublicKey = field(repr=False)

    @classmethod
    def generate(cls, algorithm: Algorithm, lifetime: int) -> Self:
        """Generate a new key for tokens with a lifetime in seconds."""
        private = _generate(algorithm)
        public = private.public_key()
        return cls(
            kid=_thumbprint(public),
            algorithm=algorithm,
            created=int(time.time()),
            lifetime=lifetime,
            retired=None,
            private=private,
            public=public,
        )

    @classmethod
    def from_record(cls, record: KeyRecord) -> Self:
        """Return the key of a record.

        Raises:
            ValueError: The private key is invalid, or not for the record's algorithm.
        """
        private = serialization.load_pem_private_key(record.private_key.encode(), password=None)
        if not isinstance(private, PrivateKey) or not _matches_algorithm(private, record.algorithm):
            msg = f"key {record.kid} is not one for {record.algorithm}"
            raise ValueError(msg)
        return cls(
            kid=record.kid,
            algorithm=record.algorithm,
            created=record.created,
            lifetime=record.lifetime,
            retired=record.retired,
            private=private,
            public=private.public_key(),
        )

    def record(self) -> KeyRecord:
        """Return the key's record for the file."""
        pem = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return KeyRecord(
            kid=self.kid,
            algorithm=self.algorithm,
            created=self.created,
            lifetime=self.lifetime,
            retired=self.retired,
            private_key=pem.decode(),
        )

    def retire(self) -> SigningKey:
        """Return a copy that is retired now."""
        return replace(self, retired=int(time.time()))

    @property
    def verifies_until(self) -> float:
        """When its last token expires, in seconds since the epoch; infinite until the key is retired."""
        return float("inf") if self.retired is None else self.retired + self.lifetime + _GRACE

    def jwk(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key (RFC 7517)."""
        return {**_public_jwk(self.public), "kid": self.kid, "use": "sig", "alg": self.algorithm}


def _generate(algorithm: Algorithm) -> PrivateKey:
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()


def _matches_algorithm(private: PrivateKey, algorithm: Algorithm) -> bool:
    match algorithm:
        case "RS256":
            return isinstance(private, rsa.RSAPrivateKey) and private.key_size >= _RSA_BITS
        case "ES256":
            return isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1)
        case "EdDSA":
            return isinstance(private, ed25519.Ed25519PrivateKey)


def _public_jwk(public: PublicKey) -> dict[str, str]:
    """Return only the members that RFC 7518 section 6 and RFC 8037 require of a public key."""
    members: dict[str, Any]
    match public:
        case rsa.RSAPublicKey():
            members = RSAAlgorithm.to_jwk(public, as_dict=True)
        case ec.EllipticCurvePublicKey():
            members = ECAlgorithm.to_jwk(public, as_dict=True)
        case _:
            members = OKPAlgorithm.to_jwk(public, as_dict=True)
    return {name: members[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in members}


def _thumbprint(public: PublicKey) -> str:
    """Return the RFC 7638 thumbprint: SHA-256 over the required members in lexical order."""
    canonical = json.dumps(_public_jwk(public), separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(hashlib.sha256(canonical.encode()).digest()).rstrip(b"=").decode()
