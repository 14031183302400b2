"""The certificates that HTTPS listeners show: made here for development, or the operator's own (CONTRACT 1).

The development certificate's folder holds `keystore.p12` with its password in `keystore.password`, and the same
pair as `certificate.pem` and `key.pem`. The key store is what counts; the PEM files are written from it whenever
they differ, so a start that was interrupted anywhere is put right by the next one.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plughost._api.errors import CertificateError
from plughost._api.host import CertificateInfo
from plughost._files import locked_folder, tighten, write_private
from plughost._servers.base import TLSFiles
from plughost._tls.keypairs import KeyPair, chain_pem, key_type, read_chain, read_pem, read_pkcs12, usable_in_place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plughost._settings.sources import Settings

__all__ = [
    "DEFAULT_NAMES",
    "CertificateError",
    "PreparedTLS",
    "certificate_in_use",
    "describe",
    "ensure_self_signed",
    "load_production",
    "prepare",
    "public_pem",
    "tls_folder",
]

DEFAULT_NAMES: Final = ("localhost", "127.0.0.1", "::1")

# Public authorities may issue for 398 days at most, and clients apply that to others as well: stay below.
_VALIDITY: Final = timedelta(days=397)
_RENEW_BEFORE: Final = timedelta(days=30)
# Clocks of containers and virtual machines run apart.
_BACKDATED: Final = timedelta(hours=1)

_KEY_STORE: Final = "keystore.p12"
_PASSWORD: Final = "keystore.password"  # noqa: S105 - the name of a file, not a password
_CERTIFICATE: Final = "certificate.pem"
_KEY: Final = "key.pem"
_FRIENDLY_NAME: Final = b"plughost"
_COMMON_NAME: Final = "plughost development certificate"

_DNS_NAME: Final = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTLS(TLSFiles):
    """Files that an engine can serve, and what happened on the way to them.

    Attributes:
        made: Whether a certificate was made just now.
        warnings: What the operator should know, one sentence or two each.
        chain: The certificates as they were read, the server's first: files may be replaced while they are served.
    """

    made: bool = False
    warnings: tuple[str, ...] = ()
    chain: tuple[x509.Certificate, ...] = field(default=(), compare=False, repr=False)

    def require_unchanged(self) -> None:
        """Refuse files that were replaced since they were read.

        Raises:
            CertificateError: They hold another certificate now, or can't be read.
        """
        if read_chain(self.certificate) != self.chain:
            raise CertificateError(f"{self.certificate}: was replaced while it was being read; try again")


def prepare(settings: Settings, *, dev: bool) -> PreparedTLS:
    """Return the files that the HTTPS listeners serve, as the settings want it.

    Args:
        settings: The host's settings, of which the table `[tls]` counts.
        dev: Whether the host runs with `--dev`, where a certificate is made if none is set.

    Raises:
        CertificateError: There is none, or the one that is set cannot be used.
    """
    tls, folder = settings.host.tls, tls_folder(settings)
    if tls.certificate or tls.key or tls.pkcs12:
        certificate, key, pkcs12 = map(settings.path, (tls.certificate, tls.key, tls.pkcs12))
        return load_production(certificate, key, pkcs12, _password(settings), folder)
    if dev or tls.self_signed:
        return ensure_self_signed(folder, tls.names)
    raise CertificateError(
        "HTTPS needs a certificate. Set `certificate` and `key` (PEM files), or `pkcs12`, under [tls]; "
        "or, for development, run with --dev or set `self_signed = true` there to have one made"
    )


def tls_folder(settings: Settings) -> Path:
    """Return the folder of the certificates that are made or converted here."""
    return settings.data_dir / "tls"


def ensure_self_signed(
    folder: Path, names: Sequence[str], *, force: bool = False, now: datetime | None = None
) -> PreparedTLS:
    """Return the development certificate, and make it where there is none that will do.

    It is made anew within 30 days of its end, when the names change, when its files are damaged, and on request.
    Threads and processes may call this at the same time: they all return the same certificate.

    Args:
        folder: Where it is kept; made, and closed to others.
        names: Host names and IP addresses that it is valid for, besides `DEFAULT_NAMES`.
        force: Make a new one in any case.
        now: The present, with a time zone; the clock's by default.

    Raises:
        CertificateError: A name is none, or the folder cannot be written.
    """
    wanted = _host_names(names)
    try:
        with locked_folder(folder):
            return _ensure(folder, wanted, force=force, now=now or datetime.now(UTC))
    except OSError as error:
        raise _unwritable(folder, error) from error


def load_production(
    certificate: Path | None,
    key: Path | None,
    pkcs12: Path | None,
    password: str | None,
    work_dir: Path,
    *,
    now: datetime | None = None,
) -> PreparedTLS:
    """Return the operator's own certificate, checked, in files that an engine can serve.

    PEM files that will do are used where they are. A key store, and a key that is encrypted or not PKCS#8, is
    converted to files in `work_dir` (mode 0600), since granian reads unencrypted PKCS#8 only.

    Args:
        certificate: PEM file with the server's certificate, followed by its chain.
        key: PEM file with the private key; None where it lies in the certificate's file.
        pkcs12: A key store, in place of both.
        password: What the key or the key store is encrypted with.
        work_dir: Where converted files are kept.
        now: The present, with a time zone; the clock's by default.

    Raises:
        CertificateError: A file cannot be used, the pair doesn't match, or the certificate has expired.
    """
    if pkcs12 is not None and (certificate or key):
        raise CertificateError("both PEM files and `pkcs12` are set under [tls]; keep one of them")
    if pkcs12 is not None:
        source, pair = pkcs12, read_pkcs12(pkcs12, password)
    elif certificate is not None:
        source, pair = certificate, read_pem(certificate, key, password)
    else:
        raise CertificateError("`key` is set under [tls] and `certificate` is not; set both, or `pkcs12`")
    warnings = _production_warnings(source, pair, now or datetime.now(UTC))
    if certificate is not None and key is not None and usable_in_place(certificate, key):
        if key.stat().st_mode & 0o007:
            warnings.append(f"{key}: every user of this machine may read the private key; `chmod 600 {key}`")
        return PreparedTLS(certificate=certificate, key=key, warnings=tuple(warnings), chain=pair.chain)
    files = PreparedTLS(
        certificate=work_dir / "production-certificate.pem",
        key=work_dir / "production-key.pem",
        warnings=tuple(warnings),
        chain=pair.chain,
    )
    try:
        with locked_folder(work_dir):
            write_private(files.key, pair.key_pem)
            write_private(files.certificate, pair.certificate_pem)
    except OSError as error:
        raise _unwritable(work_dir, error) from error
    return files


def certificate_in_use(settings: Settings) -> tuple[Path, str | None]:
    """Return the file with the certificate that a host with these settings shows, and the file's password.

    Raises:
        CertificateError: None is set, and none was made yet.
    """
    tls = settings.host.tls
    path = settings.path(tls.pkcs12 or tls.certificate)
    if path is not None:
        return path, _password(settings)
    made = tls_folder(settings) / _CERTIFICATE
    if not made.exists():
        raise CertificateError(f"{made}: there is no certificate yet; `plughost cert create` makes one")
    return made, None


def describe(
    source: PreparedTLS | Path, password: str | None = None, *, now: datetime | None = None
) -> CertificateInfo:
    """Return what the server's certificate says.

    Args:
        source: What a listener serves, as it was read; or a PEM or PKCS#12 file, as it is now.
        password: What a PKCS#12 file is encrypted with.
        now: The present, with a time zone; the clock's by default.

    Raises:
        CertificateError: The file cannot be read, or holds no certificate.
    """
    if isinstance(source, PreparedTLS):
        path, leaf = source.certificate, source.chain[0]
    else:
        path, leaf = source, read_chain(source, password)[0]
    return CertificateInfo(
        subject=leaf.subject.rfc4514_string(),
        issuer=leaf.issuer.rfc4514_string(),
        names=_names_of(leaf),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        days_left=(leaf.not_valid_after_utc - (now or datetime.now(UTC))).days,
        sha256=leaf.fingerprint(hashes.SHA256()).hex(":").upper(),
        self_signed=leaf.issuer == leaf.subject,
        key_type=key_type(leaf.public_key()),
        path=path,
    )


def public_pem(source: Path, password: str | None = None) -> bytes:
    """Return the certificates of a PEM or PKCS#12 file as PEM, never its key.

    Raises:
        CertificateError: The file cannot be read, or holds no certificate.
    """
    return chain_pem(read_chain(source, password))


def _password(settings: Settings) -> str | None:
    password = settings.host.tls.password
    return None if password is None else password.get_secret_value()


def _ensure(folder: Path, names: tuple[str, ...], *, force: bool, now: datetime) -> PreparedTLS:
    """Do the work of `ensure_self_signed`, with the folder's lock held."""
    warnings = []
    tighten(folder, 0o700)
    pair = None
    exposed = [name for name in (_KEY, _KEY_STORE, _PASSWORD) if tighten(folder / name, 0o600)]
    if exposed:
        warnings.append(
            f"{folder}: other users could read {', '.join(exposed)}; only the owner can now. "
            "`plughost cert create --force` makes a new key"
        )
    if (folder / _KEY_STORE).exists():
        try:
            pair = read_pkcs12(folder / _KEY_STORE, (folder / _PASSWORD).read_text("ascii"))
        except (CertificateError, OSError, UnicodeDecodeError) as error:
            warnings.append(f"{folder / _KEY_STORE}: could not be used ({error}); a new certificate was made")
    made = force or pair is None or not _will_do(pair.leaf, names, now)
    if pair is None or made:
        pair = _make(names, now)
        _write_key_store(folder, pair)
    for name, content in ((_KEY, pair.key_pem), (_CERTIFICATE, pair.certificate_pem)):
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            if not made:
                warnings.append(f"{folder / name}: was not what the key store holds, and was written anew from it")
            write_private(folder / name, content)
    return PreparedTLS(
        certificate=folder / _CERTIFICATE, key=folder / _KEY, made=made, warnings=tuple(warnings), chain=pair.chain
    )


def _will_do(leaf: x509.Certificate, names: tuple[str, ...], now: datetime) -> bool:
    fresh = leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc - _RENEW_BEFORE
    return fresh and set(_names_of(leaf)) == set(names)


def _make(names: tuple[str, ...], now: datetime) -> KeyPair:
    """Return a new key with its certificate: a leaf that signs nothing else, so trusting it trusts only it."""
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
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now - _BACKDATED + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(identifier, critical=False)
        # Tells certificates of one subject apart where a client trusts several (RFC 5280 section 4.2.1.1).
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair((certificate,), key)


def _write_key_store(folder: Path, pair: KeyPair) -> None:
    """Write the key store, with a new password beside it.

    Java refuses a key store without a password. Beside it the password protects nothing: the files' modes do.
    """
    if not isinstance(pair.key, ec.EllipticCurvePrivateKey):
        raise TypeError(type(pair.key))
    password = secrets.token_urlsafe(24)
    content = pkcs12.serialize_key_and_certificates(
        _FRIENDLY_NAME, pair.key, pair.leaf, None, BestAvailableEncryption(password.encode())
    )
    write_private(folder / _PASSWORD, password.encode())
    write_private(folder / _KEY_STORE, content)


def _production_warnings(source: Path, pair: KeyPair, now: datetime) -> list[str]:
    """Return what the operator should know about a certificate that can be served.

    Raises:
        CertificateError: It has expired.
    """
    leaf = pair.leaf
    if now >= leaf.not_valid_after_utc:
        raise CertificateError(
            f"{source}: the certificate expired on {leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; "
            "renew it, or check this machine's clock"
        )
    warnings = []
    if now < leaf.not_valid_before_utc:
        warnings.append(
            f"{source}: the certificate is not valid before {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; "
            "clients refuse it until then, unless this machine's clock is wrong"
        )
    if now >= leaf.not_valid_after_utc - _RENEW_BEFORE:
        days = (leaf.not_valid_after_utc - now).days
        warnings.append(f"{source}: the certificate expires in {days} days; renew it, then `plughost reload`")
    if not _names_of(leaf):
        warnings.append(f"{source}: the certificate names no host (subjectAltName); clients will refuse it")
    if len(pair.chain) == 1 and leaf.issuer != leaf.subject:
        warnings.append(
            f"{source}: holds no intermediate certificates; unless clients trust `{leaf.issuer.rfc4514_string()}` "
            "directly, use the file with the whole chain (certbot's fullchain.pem)"
        )
    return warnings


def _host_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the default names and the given ones, in canonical form and each once."""
    return tuple(dict.fromkeys([*DEFAULT_NAMES, *map(_host_name, names)]))


def _host_name(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name.strip().removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    plain = name.strip().removesuffix(".")
    wildcard = "*." if plain.startswith("*.") else ""
    try:
        # A name in another script is written in its ASCII form in a certificate (RFC 5280 section 7.2).
        canonical = wildcard + plain.removeprefix("*.").encode("idna").decode().lower()
    except UnicodeError:
        canonical = ""
    if not _DNS_NAME.fullmatch(canonical) or len(canonical) > 253:
        raise CertificateError(
            f"`{name}` is no host name or IP address; give it as in `names = ['dev.example.org', '192.168.1.20']` "
            "under [tls], without scheme and port"
        )
    return canonical


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def _unwritable(folder: Path, error: OSError) -> CertificateError:
    return CertificateError(
        f"{error.filename or folder}: cannot be read or written ({error.strerror}); "
        "the user that runs plughost needs the folder to itself"
    )
