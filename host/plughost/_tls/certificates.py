"""The certificates of HTTPS listeners: the operator's own, or a generated one (CONTRACT 1).

The folder of a generated one contains `keystore.p12` with its password in `keystore.password`, and the same pair as
`certificate.pem` and `key.pem`. The key store is authoritative: the PEM files are rewritten from it whenever they
differ, so a start repairs what an interrupted one left. What can't be used raises `CertificateError`.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plughost._api.errors import CertificateError
from plughost._api.host import CertificateInfo
from plughost._files import tighten, write_private
from plughost._servers import ListenError
from plughost._servers.connections import require_descriptors
from plughost._tls.keypairs import (
    RENEW_BEFORE,
    KeyPair,
    PreparedTLS,
    chain_pem,
    is_exposed,
    key_type,
    locked_tls_folder,
    names_of,
    read_chain,
    read_pem,
    read_pkcs12,
    usable_in_place,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from plughost._api.reload_report import ReloadReport
    from plughost._apps.application import SiteApp
    from plughost._runtime.sites import Serving
    from plughost._settings.sources import Settings

DEFAULT_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_CERTIFICATE_FILE: Final = "certificate.pem"
_DESCRIPTORS: Final = 4  # without one, a good key store can't be read, and would be replaced

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


def prepare(settings: Settings, *, dev: bool) -> PreparedTLS:
    """Return the certificate and key files for the HTTPS listeners, according to the settings."""
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
    """Return the folder of the certificates that the host generates or converts."""
    return settings.data_dir / "tls"


def load_production(
    certificate: Path | None, key: Path | None, pkcs12: Path | None, password: str | None, work_dir: Path
) -> PreparedTLS:
    """Check the operator's own certificate, and return files that an engine can serve.

    Suitable PEM files are used in place. A key store, and a key that is encrypted or not PKCS#8, is converted to files
    in `work_dir` (mode 0600), since granian reads unencrypted PKCS#8 only. If `key` is None, the certificate's file
    contains the key.
    """
    if pkcs12 is not None and (certificate or key):
        raise CertificateError("both PEM files and `pkcs12` are set under [tls]; keep one of them")
    if pkcs12 is not None:
        source, pair = pkcs12, read_pkcs12(pkcs12, password)
    elif certificate is not None:
        source, pair = certificate, read_pem(certificate, key, password)
    else:
        raise CertificateError("`key` is set under [tls] and `certificate` is not; set both, or `pkcs12`")
    warnings = _production_warnings(source, pair)
    if certificate is not None and key is not None and usable_in_place(certificate, key):
        if is_exposed(key):
            warnings.append(f"{key}: every user of this machine may read the private key; `chmod 600 {key}`")
    else:
        certificate, key = work_dir / "production-certificate.pem", work_dir / "production-key.pem"
        with locked_tls_folder(work_dir):
            write_private(key, pair.key_pem)
            write_private(certificate, chain_pem(pair.chain))
    return PreparedTLS(certificate=certificate, key=key, warnings=tuple(warnings), chain=pair.chain)


def certificate_in_use(settings: Settings) -> tuple[Path, str | None]:
    """Return the certificate file that a host with these settings serves, and the file's password."""
    tls = settings.host.tls
    path = settings.path(tls.pkcs12 or tls.certificate)
    if path is not None:
        return path, _password(settings)
    made = tls_folder(settings) / _CERTIFICATE_FILE
    if not made.exists():
        raise CertificateError(f"{made}: there is no certificate yet; `plughost cert create` makes one")
    return made, None


def describe(source: PreparedTLS | Path, password: str | None = None) -> CertificateInfo:
    """Describe the server's certificate: that of prepared files as it was read, or that of a file as it is now."""
    if isinstance(source, PreparedTLS):
        path, leaf = source.certificate, source.chain[0]
    else:
        path, leaf = source, read_chain(source, password)[0]
    return CertificateInfo(
        subject=leaf.subject.rfc4514_string(),
        issuer=leaf.issuer.rfc4514_string(),
        names=names_of(leaf),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        days_left=(leaf.not_valid_after_utc - datetime.now(UTC)).days,
        sha256=leaf.fingerprint(hashes.SHA256()).hex(":").upper(),
        self_signed=leaf.issuer == leaf.subject,
        key_type=key_type(leaf.public_key()),
        path=path,
    )


def reload_certificate(
    report: ReloadReport, serving: Serving, site_apps: Mapping[str, SiteApp], settings: Settings, *, dev: bool
) -> ReloadReport:
    """Serve the certificate that is on the disk now, even if the reload of the plugins failed, and report it.

    If it can't be served, the old one stays. The warnings are those of a start, even if it is the one in use.
    """
    try:
        fresh = prepare(settings, dev=dev)
        report = replace(report, certificate_warnings=fresh.warnings)
        if serving.is_current(fresh):
            return report
        serving.replace_certificate(fresh, site_apps, settings.host.grace_time)
    except (CertificateError, ListenError) as error:
        return replace(report, certificate_refused=str(error))
    info = describe(fresh)
    until = f"{info.not_after:%Y-%m-%d %H:%M} UTC"
    return replace(report, certificate=f"{', '.join(info.names) or info.subject}, until {until}")


def _password(settings: Settings) -> str | None:
    password = settings.host.tls.password
    return None if password is None else password.get_secret_value()


def _production_warnings(source: Path, pair: KeyPair) -> list[str]:
    """Return warnings about a certificate. Refuse one that has expired."""
    leaf, now = pair.chain[0], datetime.now(UTC)
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
    if now >= leaf.not_valid_after_utc - RENEW_BEFORE:
        days = (leaf.not_valid_after_utc - now).days
        left = "1 day" if days == 1 else f"{days} days"
        warnings.append(f"{source}: the certificate expires in {left}; renew it, then `plughost reload`")
    if not names_of(leaf):
        warnings.append(f"{source}: the certificate names no host (subjectAltName); clients will refuse it")
    if leaf.issuer not in {each.subject for each in pair.chain}:
        warnings.append(
            f"{source}: lacks the certificate of its issuer; unless clients trust `{leaf.issuer.rfc4514_string()}` "
            "directly, use the file with the whole chain (certbot's fullchain.pem)"
        )
    warnings += [
        f"{source}: the certificate of the issuer `{each.subject.rfc4514_string()}` expired on "
        f"{each.not_valid_after_utc:%Y-%m-%d}; use the chain that came with the last renewal"
        for each in pair.chain[1:]
        if now >= each.not_valid_after_utc
    ]
    return warnings


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
    require_descriptors(_DESCRIPTORS)
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
    for name, content in ((_KEY_FILE, pair.key_pem), (_CERTIFICATE_FILE, chain_pem(pair.chain))):
        if not (folder / name).exists() or (folder / name).read_bytes() != content:
            if not made:
                warnings.append(f"{folder / name}: was not what the key store holds, and was written anew from it")
            write_private(folder / name, content)
    return PreparedTLS(
        certificate=folder / _CERTIFICATE_FILE,
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
