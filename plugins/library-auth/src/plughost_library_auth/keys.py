"""Signing keys: how they are made, written down, and shown to the public."""

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

_RSA_BITS: Final = 2048  # the least that RFC 7518 section 3.3 allows, and enough for tokens of some minutes
# A host that has just looked may sign with a key for a moment after another process retired it.
_GRACE: Final = 60


class KeyRecord(BaseModel):
    """A signing key as it stands in the file."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    kid: Annotated[str, Field(min_length=1)]
    algorithm: Algorithm
    created: int
    lifetime: int
    retired: int | None
    private_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key that signs tokens, or signed them once.

    Attributes:
        kid: Names it in a token's header: its RFC 7638 thumbprint.
        algorithm: The one algorithm that it is used with.
        created: When it was made, in seconds since the epoch.
        lifetime: The longest lifetime of any token it signed, in seconds.
        retired: When it signed its last token; None for the key that signs.
        private: Signs.
        public: Verifies.
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
        """Make a new key for tokens of a lifetime in seconds."""
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
    def of_record(cls, record: KeyRecord) -> Self:
        """Read a key from its record.

        Raises:
            ValueError: The private key is not one, or not one of the record's algorithm.
        """
        private = serialization.load_pem_private_key(record.private_key.encode(), password=None)
        if not isinstance(private, PrivateKey) or not _fits(private, record.algorithm):
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
        """Return what the file keeps of the key."""
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
        """Return the key as one that signs no more from now on."""
        return replace(self, retired=int(time.time()))

    @property
    def verifies_until(self) -> float:
        """When the last token that it signed has expired, in seconds since the epoch; infinite while it signs."""
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


def _fits(private: PrivateKey, algorithm: Algorithm) -> bool:
    match algorithm:
        case "RS256":
            return isinstance(private, rsa.RSAPrivateKey) and private.key_size >= _RSA_BITS
        case "ES256":
            return isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1)
        case "EdDSA":
            return isinstance(private, ed25519.Ed25519PrivateKey)


def _public_jwk(public: PublicKey) -> dict[str, str]:
    """Return the members that RFC 7518 section 6 and RFC 8037 require of a public key, and no others."""
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
