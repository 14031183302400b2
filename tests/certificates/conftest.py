"""Shared by the tests of certificates: TLS handshakes, a test authority, files in many forms."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from plughost._servers.base import TLSFiles

Handshake = Callable[..., str | None]


@pytest.fixture
def handshake() -> Handshake:
    """Return a function that does a TLS handshake over real sockets, as a strict client that trusts one PEM file."""

    def connect(files: TLSFiles, name: str, trusted: Path | None = None) -> str | None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(files.certificate, files.key)
        client = ssl.create_default_context(cafile=trusted or files.certificate)
        client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        near, far = socket.socketpair()
        near.settimeout(20)
        far.settimeout(20)

        def serve() -> None:
            try:
                with server.wrap_socket(far, server_side=True) as connection:
                    connection.recv(1)
            except OSError:
                far.close()  # the client refused; it says why

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with client.wrap_socket(near, server_hostname=name) as connection:
                connection.send(b"x")
                return connection.version()
        finally:
            near.close()
            thread.join()

    return connect


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, not yet in a file."""

    certificate: x509.Certificate
    key: Any

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, form: PrivateFormat = PrivateFormat.PKCS8, encryption: Any = None) -> bytes:
        """Return the key as PEM."""
        return bytes(self.key.private_bytes(Encoding.PEM, form, encryption or NoEncryption()))


class Authority:
    """A certificate authority with an intermediate, such as a company has."""

    def __init__(self, *, start: int = -1, end: int = 90) -> None:
        """Make one whose intermediate is valid from and to so many days from now."""
        self.root = self._sign("root", None, ca=True)
        self.intermediate = self._sign("intermediate", self.root, ca=True, start=start, end=end)

    def issue(
        self,
        key: Any = None,
        *,
        start: int = -1,
        end: int = 90,
        named: bool = True,
        critical: x509.ExtensionType | None = None,
    ) -> Issued:
        """Return a certificate for `service.test`, valid from and to so many days from now."""
        name = "service.test"
        return self._sign(name, self.intermediate, key=key, start=start, end=end, named=named, critical=critical)

    def _sign(
        self,
        name: str,
        by: Issued | None,
        *,
        ca: bool = False,
        key: Any = None,
        start: int = -1,
        end: int = 90,
        named: bool = True,
        critical: x509.ExtensionType | None = None,
    ) -> Issued:
        key = key or ec.generate_private_key(ec.SECP256R1())
        signer = by.key if by else key
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        usage = {"digital_signature": not ca, "key_cert_sign": ca, "crl_sign": ca}
        others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        usage |= dict.fromkeys([*others, "encipher_only", "decipher_only"], False)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(by.certificate.subject if by else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=start))
            .not_valid_after(now + timedelta(days=end))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if named:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        if critical is not None:
            builder = builder.add_extension(critical, critical=True)
        return Issued(builder.sign(signer, hashes.SHA256()), key)


@pytest.fixture(scope="session")
def authority() -> Authority:
    """Return an authority whose certificates the tests serve."""
    return Authority()
