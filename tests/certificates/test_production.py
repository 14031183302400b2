"""The operator's own certificate: checked, converted for the engines, or refused with a reason."""

from __future__ import annotations

import re
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, PrivateFormat, pkcs12

from plughost._api.errors import CertificateError
from plughost._settings.sources import read_settings
from plughost._tls import certificates
from plughost._tls.certificates import describe, load_production, prepare
from plughost._tls.keypairs import PreparedTLS

PASSWORD = "correct horse"  # not a secret: the tests' own


@pytest.fixture(scope="session")
def rsa_key() -> rsa.RSAPrivateKey:
    """Return an RSA key, which takes long to make."""
    return rsa.generate_private_key(65537, 2048)


class Files:
    """Writes files of an operator and loads them."""

    def __init__(self, folder: Path, authority: Any) -> None:
        self.certificate = folder / "fullchain.pem"
        self.key = folder / "privkey.pem"
        self.store = folder / "server.p12"
        self.root = folder / "root.pem"
        self.work = folder / "work"
        self.authority = authority
        self.root.write_bytes(authority.root.pem)

    def write(self, issued: Any, key: bytes | None = None) -> None:
        """Write a certificate with its chain, and its key or another."""
        self.certificate.write_bytes(issued.pem + self.authority.intermediate.pem)
        self.key.write_bytes(issued.key_pem() if key is None else key)
        self.key.chmod(0o600)

    def write_store(self, issued: Any, password: str | None = PASSWORD) -> None:
        """Write a key store."""
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        # The chain in the wrong order, as key stores come.
        chain = [self.authority.root.certificate, self.authority.intermediate.certificate]
        content = pkcs12.serialize_key_and_certificates(b"x", issued.key, issued.certificate, chain, encryption)
        self.store.write_bytes(content)

    def load(self, password: str | None = None) -> PreparedTLS:
        """Load the PEM files."""
        return load_production(self.certificate, self.key, None, password, self.work)

    def load_store(self, password: str | None = PASSWORD) -> PreparedTLS:
        """Load the key store."""
        return load_production(None, None, self.store, password, self.work)


@pytest.fixture
def files(tmp_path: Path, authority: Any) -> Files:
    """Return a folder of an operator."""
    return Files(tmp_path, authority)


def is_plain_pkcs8(path: Path) -> bool:
    """Return whether a file has a key in the form that granian reads."""
    return path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_usable_pair_is_served_in_place(files: Files, handshake: Any) -> None:
    """A PEM chain with a PKCS#8 key is used from its own files, and nothing is written."""
    files.write(files.authority.issue())
    loaded = files.load()
    assert loaded == PreparedTLS(certificate=files.certificate, key=files.key)
    assert not files.work.exists()
    assert handshake(loaded, "service.test", files.root)


@pytest.mark.parametrize("kind", ["SEC 1", "PKCS#1", "encrypted PKCS#8", "encrypted PKCS#1"])
def test_key_in_another_form_is_converted(files: Files, handshake: Any, rsa_key: Any, kind: str) -> None:
    """A key that granian can't read is converted to plain PKCS#8 that only the owner can read."""
    issued = files.authority.issue(None if kind == "SEC 1" else rsa_key)
    form = PrivateFormat.PKCS8 if kind == "encrypted PKCS#8" else PrivateFormat.TraditionalOpenSSL
    encryption = BestAvailableEncryption(PASSWORD.encode()) if "encrypted" in kind else None
    files.write(issued, issued.key_pem(form, encryption))
    loaded = files.load(PASSWORD)
    assert loaded.key.parent == files.work
    assert is_plain_pkcs8(loaded.key)
    assert stat.S_IMODE(loaded.key.stat().st_mode) == 0o600
    assert handshake(loaded, "service.test", files.root)


@pytest.mark.parametrize("password", [PASSWORD, None, ""])
def test_key_store_is_converted_with_its_chain(files: Files, handshake: Any, password: str | None) -> None:
    """A PKCS#12 key store, encrypted or not, becomes PEM files whose chain leads to the authority in order."""
    issued = files.authority.issue()
    files.write_store(issued, password)
    loaded = files.load_store(password)
    chain = x509.load_pem_x509_certificates(loaded.certificate.read_bytes())
    subjects = [certificate.subject.rfc4514_string() for certificate in chain]
    assert subjects == ["CN=service.test", "CN=intermediate", "CN=root"]
    assert is_plain_pkcs8(loaded.key)
    assert handshake(loaded, "service.test", files.root)


@pytest.mark.parametrize("key", [None, "both.pem", "privkey.pem"])
def test_certificate_and_key_in_one_file(files: Files, handshake: Any, key: str | None) -> None:
    """A file with both is split, so that the file served as certificate has no key."""
    issued = files.authority.issue()
    files.write(issued)
    both = files.certificate.with_name("both.pem")
    both.write_bytes(issued.key_pem() + files.certificate.read_bytes())
    loaded = load_production(both, both.with_name(key) if key else None, None, None, files.work)
    assert b"PRIVATE KEY" not in loaded.certificate.read_bytes()
    assert handshake(loaded, "service.test", files.root)


def test_key_among_other_things_is_taken_out(files: Files) -> None:
    """A key file that holds more than the key is converted to one that doesn't."""
    issued = files.authority.issue()
    files.write(issued, key=issued.pem + issued.key_pem())
    assert files.load().key.read_bytes() == issued.key_pem()


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("certificate", b"^", b"\xef\xbb\xbf"),
        ("key", b"^", b"\xef\xbb\xbf"),
        ("certificate", b"-----BEGIN", b" -----BEGIN"),
        ("certificate", b"-----\n-----", b"----------"),
        ("key", b"-----\nM", b"-----M"),
    ],
)
def test_unusual_pem_is_converted(files: Files, name: str, before: bytes, after: bytes) -> None:
    """What granian would misread, such as a byte order mark, and end the process, is written anew."""
    issued = files.authority.issue()
    files.write(issued)
    file: Path = getattr(files, name)
    file.write_bytes(re.sub(before, after, file.read_bytes()))
    served = files.load()
    assert served.certificate.read_bytes() == issued.pem + files.authority.intermediate.pem
    assert is_plain_pkcs8(served.key)


def test_certificate_of_version_1_is_refused(files: Files) -> None:
    """An older OpenSSL makes one if it is given no extensions, at which granian would end the process."""
    config = files.certificate.parent / "openssl.cnf"
    config.write_text("[req]\ndistinguished_name = names\n[names]\n")  # no extensions
    shown = subprocess.run(["openssl", "req", "-help"], capture_output=True, text=True, check=True)
    version = ["-x509v1"] if "-x509v1" in shown.stdout + shown.stderr else []  # a newer one must be told
    what = ["-x509", *version, "-config", str(config), "-subj", "/CN=x", "-nodes", "-newkey", "rsa:2048"]
    subprocess.run(["openssl", "req", *what, "-keyout", files.key, "-out", files.certificate], check=True)
    with pytest.raises(CertificateError, match="version 1"):
        files.load()


def test_renewed_files_replace_the_converted_ones(files: Files) -> None:
    """A converted key store that the operator renewed is converted anew at the next start."""
    files.write_store(files.authority.issue())
    first = describe(files.load_store()).sha256
    files.write_store(files.authority.issue())
    assert describe(files.load_store()).sha256 != first


@pytest.mark.parametrize(
    "make",
    [lambda: ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate],
    ids=["P-384", "Ed25519"],
)
def test_other_good_keys_are_served(files: Files, handshake: Any, make: Any) -> None:
    """Keys that granian and its clients agree on are accepted."""
    files.write(files.authority.issue(make()))
    assert handshake(files.load(), "service.test", files.root)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: ec.generate_private_key(ec.SECP521R1()), "EC P-521"),
        (lambda: ec.generate_private_key(ec.SECP256K1()), "EC secp256k1"),
        (ed448.Ed448PrivateKey.generate, "Ed448"),
        (lambda: rsa.generate_private_key(65537, 1024), "RSA 1024"),
    ],
    ids=["P-521", "secp256k1", "Ed448", "RSA 1024"],
)
def test_key_that_would_crash_the_engine_is_refused(files: Files, make: Any, kind: str) -> None:
    """Keys that end granian's process with a panic are refused beforehand, naming the kinds that work."""
    files.write(files.authority.issue(make()))
    with pytest.raises(CertificateError, match=f"kind {kind} cannot serve TLS here; use EC P-256"):
        files.load()


def test_mismatched_pair_is_refused(files: Files) -> None:
    """A key of another certificate is refused, naming both files."""
    files.write(files.authority.issue(), key=files.authority.issue().key_pem())
    with pytest.raises(CertificateError, match=r"privkey\.pem: is not the private key .*fullchain\.pem"):
        files.load()


def test_chain_in_the_wrong_order_is_refused(files: Files) -> None:
    """A chain whose first certificate is not the server's is refused with the right order."""
    issued = files.authority.issue()
    files.write(issued)
    files.certificate.write_bytes(files.authority.intermediate.pem + issued.pem)
    with pytest.raises(CertificateError, match="must come first"):
        files.load()


def test_expired_certificate_is_refused(files: Files) -> None:
    """An expired certificate is refused with the date of its end."""
    files.write(files.authority.issue(start=-9, end=-1))
    with pytest.raises(CertificateError, match=f"expired on {datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"):
        files.load()


@pytest.mark.parametrize(
    ("start", "end", "warning"), [(2, 90, "not valid before"), (-1, 29, "expires in 28 days")], ids=["early", "late"]
)
def test_unusual_validity_is_a_warning(files: Files, start: int, end: int, warning: str) -> None:
    """A certificate that isn't valid yet, or not for long, is served with a warning."""
    files.write(files.authority.issue(start=start, end=end))
    assert warning in files.load().warnings[0]


def test_a_certificate_without_names_is_a_warning(files: Files) -> None:
    """Clients ignore the common name, so they would refuse it."""
    files.write(files.authority.issue(named=False))
    (warning,) = files.load().warnings
    assert "names no host (subjectAltName)" in warning


def test_missing_intermediate_is_a_warning(files: Files) -> None:
    """A certificate without its chain is served with a warning that names the usual cause."""
    issued = files.authority.issue()
    files.write(issued)
    files.certificate.write_bytes(issued.pem)
    assert "fullchain.pem" in files.load().warnings[0]


def test_intermediate_of_another_authority_is_a_warning(files: Files) -> None:
    """A chain that doesn't continue, as after a renewal by another authority, is served with that warning."""
    issued = files.authority.issue()
    files.write(issued)
    files.certificate.write_bytes(issued.pem + files.authority.issue().pem)
    assert "lacks the certificate of its issuer" in files.load().warnings[0]


def test_expired_intermediate_is_a_warning(files: Files) -> None:
    """A chain with an expired certificate is served with a warning that names that certificate."""
    files.authority = type(files.authority)(start=-9, end=-1)
    files.write(files.authority.issue())
    assert f"expired on {datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}" in files.load().warnings[0]


def test_world_readable_key_is_a_warning(files: Files) -> None:
    """A key in place that every user may read is served with a warning that says what to do; a group may read it."""
    files.write(files.authority.issue())
    files.key.chmod(0o640)
    assert files.load().warnings == ()
    files.key.chmod(0o644)
    assert "chmod 600" in files.load().warnings[0]


@pytest.mark.parametrize(
    ("password", "reason"), [(None, "PLUGHOST_TLS__PASSWORD"), ("wrong", "password is wrong")], ids=["none", "wrong"]
)
def test_encrypted_key_needs_its_password(files: Files, password: str | None, reason: str) -> None:
    """An encrypted key without its password is refused with what to set."""
    issued = files.authority.issue()
    files.write(issued, issued.key_pem(encryption=BestAvailableEncryption(PASSWORD.encode())))
    with pytest.raises(CertificateError, match=reason):
        files.load(password)


@pytest.mark.parametrize("password", [None, "wrong"])
def test_key_store_needs_its_password(files: Files, password: str | None) -> None:
    """A key store without its password is refused, naming it."""
    files.write_store(files.authority.issue())
    with pytest.raises(CertificateError, match=r"server\.p12: .* password is another"):
        files.load_store(password)


def test_key_store_without_key_is_refused(files: Files) -> None:
    """A trust store in a key store's place is refused."""
    content = pkcs12.serialize_key_and_certificates(b"x", None, files.authority.root.certificate, None, NoEncryption())
    files.store.write_bytes(content)
    with pytest.raises(CertificateError, match="has no private key"):
        files.load_store(None)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (None, "there is no such file"),
        (b"", "no PEM certificate"),
        (b"-----BEGIN PRIVATE KEY-----\n", "interchanged"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "damaged"),
    ],
    ids=["missing", "empty", "key", "damaged"],
)
def test_unusable_certificate_file_is_named(files: Files, certificate: bytes | None, reason: str) -> None:
    """A certificate file that is missing or holds something else is refused by name, with the likely cause."""
    files.write(files.authority.issue())
    files.certificate.unlink()
    if certificate is not None:
        files.certificate.write_bytes(certificate)
    with pytest.raises(CertificateError, match=rf"fullchain\.pem: .*{reason}"):
        files.load()


def test_der_certificate_says_how_to_convert(files: Files) -> None:
    """A DER file is refused with the command that converts it."""
    issued = files.authority.issue()
    files.write(issued)
    files.certificate.write_bytes(issued.certificate.public_bytes(serialization.Encoding.DER))
    with pytest.raises(CertificateError, match="openssl x509 -inform der"):
        files.load()


def test_key_file_that_vanishes_after_it_was_read_is_named(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is replaced meanwhile, by unlinking it first, is refused by name."""
    files.write(files.authority.issue())
    monkeypatch.setattr(certificates, "usable_in_place", lambda _, key: key.unlink() or True)
    with pytest.raises(CertificateError, match=r"privkey\.pem: was replaced while it was being read"):
        files.load()


def test_unusable_key_file_is_named(files: Files) -> None:
    """A key file that holds no key is refused by name."""
    files.write(files.authority.issue(), key=b"nothing")
    with pytest.raises(CertificateError, match=r"privkey\.pem: holds no usable PEM private key"):
        files.load()


def test_pem_and_key_store_together_are_refused(files: Files) -> None:
    """Two certificates at once are a mistake that is named."""
    with pytest.raises(CertificateError, match="keep one"):
        load_production(files.certificate, files.key, files.store, None, files.work)


def test_settings_choose_the_operators_files(files: Files, tmp_path: Path) -> None:
    """Relative paths under [tls] start from the settings file, and --dev doesn't override them."""
    files.write(files.authority.issue())
    settings_file = tmp_path / "plughost.toml"
    settings_file.write_text('[tls]\ncertificate = "fullchain.pem"\nkey = "privkey.pem"\n')
    assert prepare(read_settings(settings_file, {}), dev=True).certificate == files.certificate


def test_password_comes_from_the_environment(files: Files) -> None:
    """The password of a key store may come from the environment."""
    files.write_store(files.authority.issue())
    variables = {"PLUGHOST_TLS__PKCS12": str(files.store), "PLUGHOST_TLS__PASSWORD": PASSWORD}
    loaded = prepare(read_settings(environment={**variables, "PLUGHOST_DATA_DIR": str(files.work)}), dev=False)
    assert loaded.key == files.work / "tls" / "production-key.pem"


def test_without_dev_the_error_for_no_certificate_names_both_solutions(tmp_path: Path) -> None:
    """Without --dev no certificate is made unasked; the error says what to set."""
    settings = read_settings(environment={"PLUGHOST_DATA_DIR": str(tmp_path)})
    with pytest.raises(CertificateError, match=r"(?s)`pkcs12`, under \[tls\].*--dev or set `self_signed = true`"):
        prepare(settings, dev=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("dev", "variables"), [(True, {}), (False, {"PLUGHOST_TLS__SELF_SIGNED": "true"})])
def test_self_signed_on_request(tmp_path: Path, dev: bool, variables: dict[str, str]) -> None:
    """With --dev, or if the settings request it, a certificate is made in the data folder."""
    files = prepare(read_settings(environment={**variables, "PLUGHOST_DATA_DIR": str(tmp_path)}), dev=dev)
    assert files.made
    assert files.certificate == tmp_path / "tls" / "certificate.pem"
