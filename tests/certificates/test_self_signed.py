"""The development certificate: made on demand, verified by strict clients, kept, renewed, repaired."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

from plughost._api.errors import CertificateError
from plughost._tls.certificates import describe, ensure_self_signed

if TYPE_CHECKING:
    from plughost._tls.keypairs import PreparedTLS

NOW = datetime.now(UTC)
SECRETS = ("key.pem", "keystore.p12", "keystore.password")

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no Java here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a TLS folder that doesn't exist yet."""
    return tmp_path / "data" / "tls"


def fingerprint(files: PreparedTLS) -> str:
    """Return a fingerprint, to tell certificates apart."""
    return describe(files).sha256


def mode(path: Path) -> int:
    """Return the permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "dev.example.test", "10.1.2.3", "a.wild.test"])
def test_strict_client_verifies_every_name(folder: Path, handshake: Any, name: str) -> None:
    """A client that trusts the PEM file verifies the server by each default and configured name."""
    files = ensure_self_signed(folder, ["dev.example.test", "10.1.2.3", "*.wild.test"])
    assert handshake(files, name) in {"TLSv1.2", "TLSv1.3"}


def test_client_refuses_another_name(folder: Path, handshake: Any) -> None:
    """A name that wasn't configured is not covered."""
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(ensure_self_signed(folder, []), "other.test")


def test_client_refuses_another_certificate(folder: Path, tmp_path: Path, handshake: Any) -> None:
    """Trusting one development certificate doesn't trust another of the same subject."""
    other = ensure_self_signed(tmp_path / "other", [])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ensure_self_signed(folder, []), "localhost", trusted=other.certificate)


@needs_openssl
def test_openssl_verifies_as_a_strict_server_certificate(folder: Path) -> None:
    """`openssl verify` accepts it for a server by name and address, strict checks included."""
    path = str(ensure_self_signed(folder, []).certificate)
    for check in (["-verify_hostname", "localhost"], ["-verify_ip", "127.0.0.1"], ["-verify_ip", "::1"]):
        command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", path, *check, path]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == f"{path}: OK\n"


@needs_keytool
def test_java_reads_the_key_store(folder: Path) -> None:
    """Java opens the key store with the password in the file beside it."""
    ensure_self_signed(folder, [])
    password = (folder / "keystore.password").read_text()
    command = ["keytool", "-list", "-keystore", str(folder / "keystore.p12"), "-storepass", password]
    assert "plughost" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_certificate_meets_browsers_requirements(folder: Path) -> None:
    """It is a P-256 leaf for servers, valid for 397 days at most, and signs nothing."""
    files = ensure_self_signed(folder, [])
    leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    extensions = leaf.extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    usage = extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc <= timedelta(days=397)
    own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == own
    assert describe(files).key_type == "EC P-256"


def test_key_store_holds_the_same_pair(folder: Path) -> None:
    """The PKCS#12 key store and the PEM files hold the same certificate and key."""
    files = ensure_self_signed(folder, [])
    password = (folder / "keystore.password").read_bytes()
    key, certificate, _ = pkcs12.load_key_and_certificates((folder / "keystore.p12").read_bytes(), password)
    pem = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert certificate == pem
    assert key is not None
    assert key.public_key() == pem.public_key()


def test_only_the_owner_reads_the_key(folder: Path) -> None:
    """Whatever the umask is, the folder is 0700 and every secret in it 0600."""
    before = os.umask(0)
    try:
        ensure_self_signed(folder, [])
    finally:
        os.umask(before)
    assert mode(folder) == 0o700
    assert {name: mode(folder / name) for name in SECRETS} == dict.fromkeys(SECRETS, 0o600)


def test_open_modes_are_corrected_and_reported(folder: Path) -> None:
    """A key that others could read is made private, with a warning that says how to get a new one."""
    files = ensure_self_signed(folder, [])
    folder.chmod(0o755)
    files.key.chmod(0o644)
    again = ensure_self_signed(folder, [])
    assert (mode(folder), mode(files.key)) == (0o700, 0o600)
    assert "key.pem" in again.warnings[0]
    assert "cert create --force" in again.warnings[0]


def test_next_start_reuses_it(folder: Path) -> None:
    """The second start finds the same certificate, whatever the order of the names."""
    first = ensure_self_signed(folder, ["a.test", "b.test"])
    second = ensure_self_signed(folder, ["B.test.", "a.test", "localhost"])
    assert first.made
    assert not second.made
    assert second.warnings == ()
    assert fingerprint(first) == fingerprint(second)


def test_force_makes_a_new_one(folder: Path) -> None:
    """On request a new one is made although the old one is still good."""
    old = fingerprint(ensure_self_signed(folder, []))
    assert fingerprint(ensure_self_signed(folder, [], force=True)) != old


@pytest.mark.parametrize(("days", "made"), [(365, False), (367, True), (500, True), (-1, True)])
def test_it_is_renewed_30_days_before_its_end(folder: Path, days: int, made: bool) -> None:
    """It is kept until 30 days before its end, then made anew; so is one from a clock that was ahead."""
    ensure_self_signed(folder, [], now=NOW)
    then = NOW + timedelta(days=days)
    files = ensure_self_signed(folder, [], now=then)
    assert files.made is made
    assert (describe(files).not_after - then).days >= 30


@pytest.mark.parametrize("names", [[], ["a.test", "b.test"], ["c.test"]])
def test_changed_names_make_a_new_one(folder: Path, names: list[str]) -> None:
    """A name more, less or changed makes a new certificate with just the names that are set."""
    ensure_self_signed(folder, ["a.test"])
    files = ensure_self_signed(folder, names)
    assert files.made
    assert describe(files).names == ("localhost", "127.0.0.1", "::1", *names)


@pytest.mark.parametrize("damage", [b"", b"garbage"])
@pytest.mark.parametrize("name", ["keystore.p12", "keystore.password"])
def test_damaged_key_store_is_replaced(folder: Path, handshake: Any, name: str, damage: bytes) -> None:
    """A damaged key store or password leads to a new pair that works, and a warning that names the file."""
    old = fingerprint(ensure_self_signed(folder, []))
    (folder / name).write_bytes(damage)
    files = ensure_self_signed(folder, [])
    assert files.made
    assert "keystore.p12" in files.warnings[0]
    assert fingerprint(files) != old
    assert handshake(files, "localhost")


def test_lost_password_is_recovered_from(folder: Path) -> None:
    """Without its password the key store is replaced."""
    ensure_self_signed(folder, [])
    (folder / "keystore.password").unlink()
    assert ensure_self_signed(folder, []).made
    assert not ensure_self_signed(folder, []).made


@pytest.mark.parametrize("name", ["key.pem", "certificate.pem"])
def test_pem_files_are_repaired_from_the_key_store(folder: Path, tmp_path: Path, handshake: Any, name: str) -> None:
    """A PEM file that is missing, cut short or of another pair is written anew, and the certificate stays."""
    files = ensure_self_signed(folder, [])
    old, content = fingerprint(files), (folder / name).read_bytes()
    ensure_self_signed(tmp_path / "other", [])
    for damage in (None, content[:40], (tmp_path / "other" / name).read_bytes()):
        (folder / name).unlink()
        if damage is not None:
            (folder / name).write_bytes(damage)
            (folder / name).chmod(0o600)
        again = ensure_self_signed(folder, [])
        assert name in again.warnings[0]
        assert not again.made
        assert fingerprint(again) == old
        assert handshake(again, "localhost")


def test_leftovers_of_a_killed_process_are_removed(folder: Path) -> None:
    """A half-written secret that a killed process left behind is gone after the next start."""
    ensure_self_signed(folder, [])
    (folder / ".key.pem.0123.private-tmp").write_text("half a key")
    ensure_self_signed(folder, [])
    assert {path.name for path in folder.iterdir()} == {*SECRETS, "certificate.pem", ".lock"}


def test_processes_that_start_at_once_agree(folder: Path, handshake: Any) -> None:
    """Four processes that start at the same time all serve the one certificate that the first of them made."""
    code = (
        "import sys; from pathlib import Path\n"
        "from plughost._tls.certificates import describe, ensure_self_signed\n"
        "sys.stdin.readline(); files = ensure_self_signed(Path(sys.argv[1]), [])\n"
        "print(files.made, describe(files).sha256, files.warnings)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    responses = [process.communicate(timeout=60)[0].split(maxsplit=2) for process in processes]
    assert sorted(made for made, _, _ in responses) == ["False", "False", "False", "True"]
    assert len({sha256 for _, sha256, _ in responses}) == 1
    assert {warnings.strip() for _, _, warnings in responses} == {"()"}
    assert handshake(ensure_self_signed(folder, []), "localhost")


def test_threads_that_change_it_at_once_leave_a_matching_pair(folder: Path, handshake: Any) -> None:
    """Forced renewals from many threads at once never mix two pairs."""
    threads = [threading.Thread(target=ensure_self_signed, args=(folder, []), kwargs={"force": True}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = ensure_self_signed(folder, [])
    assert not files.made
    assert files.warnings == ()
    assert handshake(files, "localhost")


def test_name_in_another_script_is_kept_in_ascii(folder: Path) -> None:
    """An internationalized name is in the certificate in the form that clients look up."""
    assert "xn--bcher-kva.test" in describe(ensure_self_signed(folder, ["Bücher.test"])).names


@pytest.mark.parametrize("name", ["", " ", "https://a.test", "a.test:8443", "a..test", "a b", "*", "a.*.test", "-a"])
def test_an_invalid_name_is_refused(folder: Path, name: str) -> None:
    """The error names anything that is neither a host name nor an address, before anything is written."""
    with pytest.raises(CertificateError, match="no host name or IP address") as caught:
        ensure_self_signed(folder, [name])
    assert f"`{name}`" in str(caught.value)
    assert not folder.exists()


def test_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    """If the folder's path is a file, the error names it."""
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(CertificateError, match=str(tmp_path / "data")):
        ensure_self_signed(tmp_path / "data" / "tls", [])


def test_the_folders_above_are_private_too(tmp_path: Path) -> None:
    """A data folder that is created for the certificate is as private as the certificate's own folder."""
    ensure_self_signed(tmp_path / "data" / "tls", [])
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("data", "data/tls")] == [0o700, 0o700]
