"""The generated development certificate.

Its folder contains `keystore.p12` with its password in `keystore.password`, and the same pair as `certificate.pem` and
`key.pem`. The key store is authoritative: the PEM files are rewritten from it whenever they differ, so a start repairs
what an interrupted one left. What can't be used raises `CertificateError`.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plughost._api.errors import CertificateError
from plughost._files import tighten, write_private
from plughost._tls.keypairs import (
    RENEW_BEFORE,
    KeyPair,
    PreparedTLS,
    chain_pem,
    locked_tls_folder,
    names_of,
    read_pkcs12,
)

DEFAULT_NAMES: Final = ("localhost", "127.0.0.1", "::1")
CERTIFICATE_FILE: Final = "certificate.pem"

# Clients accept 398 days at most, the limit of public authorities.
_VALIDITY: Final = timedelta(days=397)
# Validity begins earlier by this, since clocks of containers and virtual machines differ.
_CLOCK_SKEW: Final = timedelta(hours=1)

_KEY_STORE_FILE: Final = "keystore.p12"
_PASSWORD_FILE: Final = "keystore.password"  # noqa: S105 - the name of a file, not a password
_KEY_FILE: Final = "key.pem"
_FRIENDLY_NAME: Final = b"plughost"
_COMMON_NAME: Final = "plughost development certificate"

_DNS_NAME: Final = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


def ensure_self_signed(
    folder: Path, names: Sequence[str], *, force: bool = False, now: datetime | None = None
) -> PreparedTLS:
    """Return the development certificate. Generate it if there is no usable one.

    It is valid for `DEFAULT_NAMES` and the given names. It is generated anew in the last 30 days of its validity, when
    the names change, when its files are damaged, and on request. Threads and processes may call this at the same time:
    all get the same certificate. The folder is made if it is missing, and closed to other users.
    """
    wanted = list(dict.fromkeys(map(_general_name, [*DEFAULT_NAMES, *names])))
    with locked_tls_folder(folder):
        return _ensure_locked(folder, wanted, force=force, now=now or datetime.now(UTC))


def _ensure_locked(folder: Path, names: list[x509.GeneralName], *, force: bool, now: datetime) -> PreparedTLS:
    warnings = []
    tighten(folder, 0o700)
    pair = None
    exposed = [name for name in (_KEY_FILE, _KEY_STORE_FILE, _PASSWORD_FILE) if tighten(folder / name, 0o600)]
    if exposed:
        warnings.append(
            f"{folder}: other users could read {', '.join(exposed)}; only the owner can now. "
            "`plughost cert create --force` makes a new key"
        )
    if (folder / _KEY_STORE_FILE).exists():
        try:
            pair = read_pkcs12(folder / _KEY_STORE_FILE, (folder / _PASSWORD_FILE).read_text("ascii"))
        except (CertificateError, OSError, UnicodeDecodeError) as error:
            warnings.append(f"{folder / _KEY_STORE_FILE}: could not be used ({error}); a new certificate was made")
    made = force or pair is None or not _is_reusable(pair.chain[0], names, now)
    if pair is None or made:
        pair = _generate(names, now)
        _write_key_store(folder, pair)
    for name, content in ((_KEY_FILE, pair.key_pem), (CERTIFICATE_FILE, chain_pem(pair.chain))):
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            if not made:
                warnings.append(f"{folder / name}: was not what the key store holds, and was written anew from it")
            write_private(folder / name, content)
    return PreparedTLS(
        certificate=folder / CERTIFICATE_FILE,
        key=folder / _KEY_FILE,
        made=made,
        warnings=tuple(warnings),
        chain=pair.chain,
    )


def _is_reusable(leaf: x509.Certificate, names: list[x509.GeneralName], now: datetime) -> bool:
    fresh = leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc - RENEW_BEFORE
    return fresh and set(names_of(leaf)) == {str(name.value) for name in names}


def _generate(names: list[x509.GeneralName], now: datetime) -> KeyPair:
    """Generate a key with its certificate, a leaf that can sign no other, so clients that trust it trust only it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _COMMON_NAME)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now - _CLOCK_SKEW + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        # Distinguishes certificates of the same subject if a client trusts several (RFC 5280 section 4.2.1.1).
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair((certificate,), key)


def _write_key_store(folder: Path, pair: KeyPair) -> None:
    """Write the key store, with a new password beside it.

    Java requires a password. Stored in the same folder it protects nothing; the files' modes do.
    """
    assert isinstance(pair.key, ec.EllipticCurvePrivateKey), "it was generated here"
    password = secrets.token_urlsafe(24)
    content = pkcs12.serialize_key_and_certificates(
        _FRIENDLY_NAME, pair.key, pair.chain[0], None, BestAvailableEncryption(password.encode())
    )
    write_private(folder / _PASSWORD_FILE, password.encode())
    write_private(folder / _KEY_STORE_FILE, content)


def _general_name(name: str) -> x509.GeneralName:
    """Return a host name or an IP address, in its canonical form, as certificates contain it."""
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name.strip().removeprefix("[").removesuffix("]")))
    plain = name.strip().removesuffix(".")
    wildcard = "*." if plain.startswith("*.") else ""
    canonical = ""
    with suppress(UnicodeError):
        # Certificates contain internationalized names in ASCII form (RFC 5280 section 7.2).
        canonical = wildcard + plain.removeprefix("*.").encode("idna").decode().lower()
    if not _DNS_NAME.fullmatch(canonical) or len(canonical) > 253:
        raise CertificateError(
            f"`{name}` is no host name or IP address; give it as in `names = ['dev.example.org', '192.168.1.20']` "
            "under [tls], without scheme and port"
        )
    return x509.DNSName(canonical)
