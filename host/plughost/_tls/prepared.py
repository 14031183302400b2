"""TLS files that are ready to be served."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509

from plughost._api.errors import CertificateError
from plughost._servers.base import TLSFiles
from plughost._tls.keypairs import read_chain

if TYPE_CHECKING:
    from pathlib import Path

RENEW_BEFORE: Final = timedelta(days=30)


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


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses that a certificate is valid for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def unwritable(folder: Path, error: OSError) -> CertificateError:
    """Return the error for a folder that can't be used."""
    return CertificateError(
        f"{error.filename or folder}: cannot be read or written ({error.strerror}); "
        "the user that runs plughost needs the folder to itself"
    )
