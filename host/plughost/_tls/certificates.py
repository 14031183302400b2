"""The certificates of HTTPS listeners: the operator's own, or a generated one (CONTRACT 1).

What can't be used raises `CertificateError`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import hashes

from plughost._api.errors import CertificateError
from plughost._api.host import CertificateInfo
from plughost._files import write_private
from plughost._servers import ListenError
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
from plughost._tls.self_signed import CERTIFICATE_FILE, ensure_self_signed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plughost._api.reload_report import ReloadReport
    from plughost._apps.application import SiteApp
    from plughost._runtime.sites import Serving
    from plughost._settings.sources import Settings


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
    made = tls_folder(settings) / CERTIFICATE_FILE
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

    If it can't be served, the old one stays.
    """
    try:
        fresh = prepare(settings, dev=dev)
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
