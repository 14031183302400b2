"""Certificates that are damaged, or that an engine can't serve: refused with a reason, before an engine reads them."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from tests.limits import no_descriptors

from plughost._api.errors import CertificateError
from plughost._runtime.sites import client_authorities, listeners_of
from plughost._settings.sources import read_settings
from plughost._tls.certificates import ensure_self_signed, load_production
from plughost._tls.keypairs import locked_tls_folder, read_chain

DAMAGES = {
    "version": (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x06"),
    "point of the key": (b"\x03\x42\x00\x04", b"\x03\x42\x00\x09"),
    "kind of key": (b"\x06\x07*\x86H\xce=\x02\x01", b"\x06\x07*\x86H\xce=\x02\x09"),
    "type of the subject": (b"\x0c\x0cservice.test", b"\x80\x0cservice.test"),
    "host name": (b"\x82\x0cservice.test", b"\x82\x0c\xffervice.test"),
    "signature algorithm": (b"*\x86H\xce=\x04\x03\x02", b"*\x86H\xce=\x04\x03\x03"),
}


def damaged(certificate: x509.Certificate, damage: str) -> bytes:
    """Return a certificate as PEM, its last bytes of this kind replaced."""
    before, after = DAMAGES[damage]
    head, found, tail = certificate.public_bytes(Encoding.DER).rpartition(before)
    assert found
    return ssl.DER_cert_to_PEM_cert(head + after + tail).encode()


def load(folder: Path, issued: Any, certificate: bytes | None = None, key: bytes | None = None) -> Any:
    """Load a certificate and its key, or others in their place."""
    (folder / "certificate.pem").write_bytes(certificate or issued.pem)
    (folder / "key.pem").write_bytes(key or issued.key_pem())
    return load_production(folder / "certificate.pem", folder / "key.pem", None, "a password", folder / "work")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_within_a_certificate_is_refused(tmp_path: Path, authority: Any, damage: str) -> None:
    """A part that can't be read is a reason to refuse the certificate, when it is loaded or just shown."""
    issued = authority.issue()
    reason = r"certificate\.pem: holds a damaged or unsupported certificate"
    with pytest.raises(CertificateError, match=reason):
        load(tmp_path, issued, damaged(issued.certificate, damage))
    with pytest.raises(CertificateError, match=reason):
        read_chain(tmp_path / "certificate.pem")


@pytest.mark.parametrize("number", [1, 3], ids=["inner", "outer"])
def test_damaged_signature_algorithm_of_an_ed25519_certificate_is_refused(tmp_path: Path, number: int) -> None:
    """Its key has the same algorithm, which is not taken for that of the signature."""
    key, now = ed25519.Ed25519PrivateKey.generate(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "service.test")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 42, now, now + timedelta(days=90))
    certificate = builder.sign(key, None).public_bytes(Encoding.DER)
    read_chain(write(tmp_path, certificate))
    parts = certificate.split(b"\x06\x03+ep")
    whole = b"\x06\x03+ep".join(parts[:number]) + b"\x06\x03+eq" + b"\x06\x03+ep".join(parts[number:])
    with pytest.raises(CertificateError, match="its two signature algorithms differ"):
        read_chain(write(tmp_path, whole))


def write(folder: Path, certificate: bytes) -> Path:
    """Write a certificate as PEM."""
    (folder / "certificate.pem").write_text(ssl.DER_cert_to_PEM_cert(certificate))
    return folder / "certificate.pem"


@pytest.mark.parametrize(
    ("extension", "number"),
    [
        (x509.TLSFeature([x509.TLSFeatureType.status_request]), "1.3.6.1.5.5.7.1.24"),
        (x509.CertificatePolicies([x509.PolicyInformation(x509.ObjectIdentifier("1.2.3"), None)]), "2.5.29.32"),
        (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), "1.2.3.4"),
    ],
    ids=["must-staple", "policies", "unknown"],
)
def test_critical_extension_that_would_crash_the_engine_is_refused(
    tmp_path: Path, authority: Any, extension: x509.ExtensionType, number: str
) -> None:
    """A critical extension at which granian ends the process is refused beforehand, by its number."""
    with pytest.raises(CertificateError, match=rf"certificate\.pem: .* critical extension {number} cannot serve TLS"):
        load(tmp_path, authority.issue(critical=extension))


@pytest.mark.parametrize(
    "extension",
    [
        x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.NameConstraints([x509.DNSName("a")], None),
    ],
    ids=["extended key usage", "name constraints"],
)
def test_other_critical_extensions_are_served(tmp_path: Path, authority: Any, extension: x509.ExtensionType) -> None:
    """Critical extensions that granian knows are accepted."""
    issued = authority.issue(critical=extension)
    assert load(tmp_path, issued).chain == (issued.certificate,)


def test_damaged_authority_of_clients_is_refused(tmp_path: Path, authority: Any) -> None:
    """A certificate of `client_ca` at which granian would end the process is refused by its file."""
    file = tmp_path / "clients.pem"
    file.write_bytes(damaged(authority.root.certificate, "signature algorithm"))
    settings = read_settings(environment={"PLUGHOST_SITES__MAIN__CLIENT_CA": str(file)})
    https = listeners_of("main", settings)[-1]
    with pytest.raises(CertificateError, match=r"clients\.pem: holds a damaged or unsupported certificate"):
        client_authorities(https, settings)


def test_password_of_a_key_that_is_not_encrypted_is_ignored(tmp_path: Path, authority: Any) -> None:
    """Text beside the key that has the word ENCRYPTED doesn't make it an encrypted one."""
    issued = authority.issue()
    assert load(tmp_path, issued, key=b"NOT ENCRYPTED\n" + issued.key_pem()).chain == (issued.certificate,)


def test_damaged_kind_of_a_key_is_refused(tmp_path: Path, authority: Any) -> None:
    """An Ed25519 key that names itself Ed448, and is too short for one, is refused by its file."""
    issued = authority.issue(ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(CertificateError, match=r"key\.pem: holds no usable PEM private key"):
        load(tmp_path, issued, key=issued.key_pem().replace(b"K2Vw", b"K2Vx"))


def test_a_full_disk_is_no_matter_of_permissions(tmp_path: Path) -> None:
    """The advice is to free some space; an operator would look at owners and modes in vain."""
    with (
        pytest.raises(CertificateError, match=r"No space left on device\); free some space") as caught,
        locked_tls_folder(tmp_path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "key.pem"))
    assert "the user" not in str(caught.value)


def test_a_lack_of_descriptors_is_no_matter_of_permissions(tmp_path: Path, authority: Any) -> None:
    """The advice is to allow more files, beside what can't be read for that; a good key store is not replaced."""
    file = tmp_path / "clients.pem"
    file.write_bytes(authority.root.pem)
    settings = read_settings(environment={"PLUGHOST_SITES__MAIN__CLIENT_CA": str(file)})
    https = listeners_of("main", settings)[-1]
    make = partial(ensure_self_signed, tmp_path / "made", ())
    reads: tuple[Callable[[], object], ...] = (
        partial(read_chain, make().certificate),
        partial(client_authorities, https, settings),
        make,
        make,
    )
    message = r"Too many open files\); .*LimitNOFILE"
    for read, but in zip(reads, (0, 0, 0, 2), strict=True):
        with pytest.raises(CertificateError, match=message) as caught, no_descriptors(but=but):
            read()
        assert str(tmp_path) in str(caught.value)
        assert "the user" not in str(caught.value)
    assert not make().made
