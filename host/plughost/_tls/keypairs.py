"""Certificates with their private keys: reads and checks PEM and PKCS#12 files.

What can't be used raises `CertificateError`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtensionOID, PublicKeyAlgorithmOID

from plughost._api.errors import CertificateError
from plughost._files import locked_folder
from plughost._servers.base import TLSFiles
from plughost._servers.connections import MORE_FILES, OUT_OF_FILES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

RENEW_BEFORE: Final = timedelta(days=30)

_PEM: Final = b"-----BEGIN "
_PEM_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_PEM_BLOCK: Final = re.compile(rb"^-----BEGIN ([A-Z0-9 ]+)-----\n(?:[A-Za-z0-9+/=]+\n)+-----END \1-----$", re.MULTILINE)
_RSA_BITS: Final = 2048
_SERVED_KEYS: Final = ("EC P-256", "EC P-384", "Ed25519")  # beside RSA
_SERVED_CRITICAL_EXTENSIONS: Final = frozenset(  # granian ends the process at others
    {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.CRL_DISTRIBUTION_POINTS,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.NAME_CONSTRAINTS,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
    }
)
_CURVE_NAMES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate chain, the server's own certificate first, and the private key of that certificate."""

    chain: tuple[x509.Certificate, ...]
    key: PrivateKeyTypes

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTLS(TLSFiles):
    """Files that an engine can serve, and how they came about.

    Attributes:
        made: Whether the certificate was generated just now.
        warnings: Warnings for the operator, of one or two sentences each.
        chain: The certificates as they were read, the server's first: files may be replaced while they are served.
    """

    made: bool = False
    warnings: tuple[str, ...] = ()
    chain: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)

    def require_unchanged(self) -> None:
        """Raise an error if the files were replaced since they were read."""
        if read_chain(self.certificate) != self.chain:
            raise CertificateError(f"{self.certificate}: was replaced while it was being read; try again")


def chain_pem(chain: tuple[x509.Certificate, ...]) -> bytes:
    """Return certificates as PEM."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in chain)


def read_chain(path: Path, password: str | None = None) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM or PKCS#12 file, the server's first."""
    content = _read(path)
    return _pem_chain(path, content) if _PEM in content else read_pkcs12(path, password).chain


def read_pem(certificate: Path, key: Path | None, password: str | None = None) -> KeyPair:
    """Return a certificate with its chain and its key from two PEM files, or from a single one.

    The key is PKCS#8, PKCS#1 or SEC 1. The password is ignored if the key isn't encrypted.
    """
    chain = _pem_chain(certificate, _read(certificate))
    key_file = key or certificate
    return _check_pair(KeyPair(chain, _pem_key(key_file, password)), certificate, key_file)


def read_pkcs12(path: Path, password: str | None = None) -> KeyPair:
    """Return a certificate with its chain and key from a PKCS#12 key store (RFC 7292).

    Raises:
        CertificateError: It can't be read, or the password is wrong.
    """
    content = _read(path)
    try:
        found = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except UnsupportedAlgorithm as error:
        raise CertificateError(
            f"{path}: is encrypted in a way that is no longer supported ({error}); "
            "export it anew with AES, as `openssl pkcs12 -export` does"
        ) from error
    except (ValueError, x509.InvalidVersion) as error:
        raise CertificateError(
            f"{path}: is no PKCS#12 key store, is damaged, or its password is another than the "
            f"{'given one' if password else 'empty one'}; check it with `openssl pkcs12 -info -noout -in {path}`"
        ) from error
    if found.cert is None or found.key is None:
        missing = "private key" if found.key is None else "certificate that belongs to its private key"
        raise CertificateError(f"{path}: has no {missing}; export both into one key store")
    others = [extra.certificate for extra in found.additional_certs]
    with _readable_certificates(path):
        chain = _parsed(_order_chain(found.cert.certificate, others))
    return _check_pair(KeyPair(chain, found.key), path, path)


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses that a certificate is valid for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


@contextmanager
def locked_tls_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder of certificates. See `plughost.locked_folder`."""
    try:
        with locked_folder(folder):
            yield
    except OSError as error:
        advice = advice_on(error, "the user that runs plughost needs the folder to itself")
        raise CertificateError(
            f"{error.filename or folder}: cannot be read or written ({error.strerror}); {advice}"
        ) from error


def usable_in_place(certificate: Path, key: Path) -> bool:
    """Return whether an engine can read the PEM files as they are: only certificates, and one PKCS#8 key."""
    return set(pem_labels(_read(certificate))) == {b"CERTIFICATE"} and pem_labels(_read(key)) == [b"PRIVATE KEY"]


def pem_labels(content: bytes) -> list[bytes]:
    """Return the label of each PEM block, such as `CERTIFICATE`. Empty if granian does not find all.

    Blocks must be on lines of their own, without a byte order mark before the first. Others read more, and granian ends
    the process if it misses a certificate or a key.
    """
    content = content.replace(b"\r\n", b"\n")
    labels = _PEM_BLOCK.findall(content)
    return labels if len(labels) == content.count(_PEM) else []


def is_exposed(key: Path) -> bool:
    """Return whether every user of this machine may read the file of a key that was read just now."""
    try:
        return bool(key.stat().st_mode & 0o007)
    except OSError as error:
        raise CertificateError(f"{key}: was replaced while it was being read; try again") from error


def key_type(key: PublicKeyTypes) -> str:
    """Return the type of a key, such as `EC P-256` or `RSA 2048`."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {_CURVE_NAMES.get(key.curve.name, key.curve.name)}"
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    return type(key).__name__.removesuffix("PublicKey").lstrip("_")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CertificateError(f"{path}: there is no such file; check the paths under [tls]") from error
    except OSError as error:
        advice = advice_on(error, "the user that runs plughost must be allowed to")
        raise CertificateError(f"{path}: cannot be read ({error.strerror}); {advice}") from error


def advice_on(error: OSError, otherwise: str) -> str:
    """Return what to do about an error of the system: by its number if that tells, else `otherwise`."""
    if error.errno in OUT_OF_FILES:
        return MORE_FILES
    return "free some space" if error.errno in {errno.ENOSPC, errno.EDQUOT} else otherwise


def _pem_chain(path: Path, content: bytes) -> tuple[x509.Certificate, ...]:
    if _PEM_CERTIFICATE not in content:
        hint = (
            "it holds other PEM data; are certificate and key interchanged?"
            if _PEM in content
            else f"if it is DER, convert it with `openssl x509 -inform der -in {path} -out certificate.pem`"
        )
        raise CertificateError(f"{path}: holds no PEM certificate; {hint}")
    with _readable_certificates(path):
        return _parsed(x509.load_pem_x509_certificates(content))


def _parsed(chain: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """Return certificates after parsing what is used of them: on loading, cryptography leaves that for later."""
    leaf, *issuers = chain
    names_of(leaf)
    for each in (leaf, *issuers):
        _ = each.subject, each.issuer, each.public_key()
        algorithm = each.public_bytes(Encoding.DER).partition(each.tbs_certificate_bytes)[2]
        # The other one follows the serial number. An Ed25519 key has the same bytes.
        serial = each.serial_number.to_bytes(each.serial_number.bit_length() // 8 + 1, "big", signed=True)
        if bytes((2, len(serial))) + serial + algorithm[: 2 + algorithm[1]] not in each.tbs_certificate_bytes:
            raise ValueError("its two signature algorithms differ")
    return leaf, *issuers


@contextmanager
def _readable_certificates(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise CertificateError(
            f"{path}: holds a damaged or unsupported certificate ({error}); copy or export it anew"
        ) from error


def _pem_key(path: Path, password: str | None) -> PrivateKeyTypes:
    content = _read(path)
    encrypted = False
    try:
        try:
            return load_pem_private_key(content, None)
        except TypeError as error:
            encrypted = True
            if password:
                return load_pem_private_key(content, password.encode())
            raise CertificateError(
                f"{path}: the private key is encrypted and no password is set; "
                "set PLUGHOST_TLS__PASSWORD, or `password` under [tls]"
            ) from error
    except UnsupportedAlgorithm as error:
        raise CertificateError(f"{path}: the private key is of a kind that is not supported ({error})") from error
    except (ValueError, InternalError) as error:
        why = "the password is wrong, or the private key is damaged" if encrypted else "holds no usable PEM private key"
        raise CertificateError(f"{path}: {why}; check it with `openssl pkey -noout -in {path}`") from error


def _check_pair(pair: KeyPair, certificate: Path, key: Path) -> KeyPair:
    """Return the pair if key and certificate match and the engines support the key."""
    public = pair.key.public_key()
    matches = [one.public_key() == public for one in pair.chain]
    if not any(matches):
        raise CertificateError(
            f"{key}: is not the private key of the certificate in {certificate}; set the two that were made together"
        )
    if not matches[0]:
        raise CertificateError(
            f"{certificate}: the server's own certificate must come first, then those that issued it"
        )
    leaf = pair.chain[0]
    if leaf.version is not x509.Version.v3 or leaf.public_key_algorithm_oid == PublicKeyAlgorithmOID.RSASSA_PSS:
        raise CertificateError(
            f"{certificate}: a certificate of X.509 version 1, or for RSASSA-PSS alone, cannot serve TLS here; "
            "have one issued with a subjectAltName, for EC or RSA"
        )
    for extension in leaf.extensions:
        if extension.critical and extension.oid not in _SERVED_CRITICAL_EXTENSIONS:
            raise CertificateError(
                f"{certificate}: a certificate with the critical extension {extension.oid.dotted_string} cannot serve "
                "TLS here; have one issued without it"
            )
    kind = key_type(public)
    if kind in _SERVED_KEYS or (isinstance(pair.key, rsa.RSAPrivateKey) and pair.key.key_size >= _RSA_BITS):
        return pair
    # Other keys make the engine panic, or clients refuse them.
    raise CertificateError(
        f"{key}: a key of kind {kind} cannot serve TLS here; "
        f"use EC P-256, EC P-384, Ed25519, or RSA with {_RSA_BITS} bits or more"
    )


def _order_chain(leaf: x509.Certificate, others: list[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """Order the chain from the leaf upwards. A key store contains the others in any order."""
    chain = [leaf]
    left = {one.subject: one for one in others}
    while issuer := left.pop(chain[-1].issuer, None):
        chain.append(issuer)
    return tuple(chain)
