"""The accepted versions of TLS, and client certificates."""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.certificates.conftest import Authority

from plughost import CertificateError, Operation, Route, RouteGroup, hookimpl
from plughost._runtime.sites import Serving
from plughost.testing import RunningHost, plugin_distribution, running_host


class _Hello:
    def on_get(self, req: object, resp: object) -> None:
        """Answer with nothing."""


class _Greeting:
    def __init__(self, site: str = "main") -> None:
        self._site = site

    @hookimpl
    def register_routes(self, context: object) -> list[RouteGroup]:
        routes = (Route("", _Hello(), {"GET": Operation(summary="Greet", produces=())}),)
        return [RouteGroup(prefix="/hello", site=self._site, routes=routes)]


def _status(host: RunningHost, context: ssl.SSLContext) -> int:
    with host.client("main", "https", verify=context) as client:
        return client.get("/hello").status_code


def _context(host: RunningHost) -> ssl.SSLContext:
    assert host.host.tls is not None
    return ssl.create_default_context(cafile=str(host.host.tls.certificate))


@pytest.mark.parametrize(("policy", "old"), [("intermediate", True), ("modern", False)])
def test_the_policy_decides_whether_tls_1_2_is_spoken(policy: str, old: bool) -> None:
    """`intermediate` speaks TLS 1.2 and 1.3, `modern` 1.3 alone."""
    with running_host(distributions=[plugin_distribution("hello", _Greeting())], dev=True) as first:
        assert first.host.tls is not None
        pair = {"certificate": str(first.host.tls.certificate), "key": str(first.host.tls.key)}
        settings = {"tls": {**pair, "policy": policy}}
        with running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings) as host:
            assert _status(host, _context(host)) == 200
            context = _context(host)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            if old:
                assert _status(host, context) == 200
            else:
                with pytest.raises(httpx.ConnectError):
                    _status(host, context)


@pytest.mark.skipif(shutil.which("sslscan") is None, reason="there is no sslscan here")
@pytest.mark.parametrize(("policy", "spoken"), [("intermediate", {"1.2", "1.3"}), ("modern", {"1.3"})])
def test_sslscan_finds_nothing_weak(policy: str, spoken: set[str]) -> None:
    """A separate scanner finds the policy's versions, only ciphers with forward secrecy, and no known vulnerability."""
    settings = {"tls": {"policy": policy}}
    with running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings, dev=True) as host:
        place = host.url("main", "https").removeprefix("https://")
        done = subprocess.run(["sslscan", "--xml=-", place], capture_output=True, text=True, check=True)
    found = ElementTree.fromstring(done.stdout)  # our own scanner's
    enabled = {(each.get("type"), each.get("version")) for each in found.iter("protocol") if each.get("enabled") == "1"}
    assert enabled == {("tls", version) for version in spoken}
    ciphers = [(str(each.get("cipher")), each.get("strength")) for each in found.iter("cipher")]
    assert ciphers
    assert {strength for _, strength in ciphers} <= {"strong", "acceptable"}
    assert all(name.startswith(("TLS_", "ECDHE-")) for name, _ in ciphers)
    assert not [each for each in found.iter("heartbleed") if each.get("vulnerable") != "0"]
    assert not [
        each for each in found.iter("renegotiation") if (each.get("supported"), each.get("secure")) == ("1", "0")
    ]
    assert not [each for each in found.iter("compression") if each.get("supported") == "1"]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_clients_need_a_certificate_of_the_set_authority(tmp_path: Path, line_end: bytes) -> None:
    """With `client_ca`, a client without a certificate, or with another authority's, gets no answer."""
    ours, theirs = _authority(tmp_path / "ours"), _authority(tmp_path / "theirs")
    ours.write_bytes(ours.read_bytes().replace(b"\n", line_end))
    settings = {"sites": {"main": {"client_ca": str(ours)}}}
    with running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings) as host:
        context = _context(host)
        context.load_cert_chain(ours.with_suffix(".client"))
        assert _status(host, context) == 200
        stranger = _context(host)
        stranger.load_cert_chain(theirs.with_suffix(".client"))
        for refused in (_context(host), stranger):
            with pytest.raises(httpx.TransportError):
                _status(host, refused)


def test_a_reload_reads_the_authorities_of_clients_anew(tmp_path: Path) -> None:
    """A reload refuses clients of an authority that was replaced; a damaged file changes nothing, and is reported."""
    first, second = _authority(tmp_path / "first"), _authority(tmp_path / "second")
    authorities = tmp_path / "clients.pem"
    shutil.copy(first, authorities)
    settings = {"sites": {"main": {"client_ca": str(authorities)}}}
    with running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings) as host:
        admitted, other = _context(host), _context(host)
        admitted.load_cert_chain(first.with_suffix(".client"))
        other.load_cert_chain(second.with_suffix(".client"))
        authorities.write_text("damaged")
        assert "sites.main.client_ca" in str(host.host.reload().certificate_refused)
        assert _status(host, admitted) == 200
        shutil.copy(second, authorities)
        assert host.host.reload().certificate
        assert _status(host, other) == 200
        with pytest.raises(httpx.TransportError):
            _status(host, admitted)
        assert not host.host.reload().certificate


def test_a_reload_warns_of_the_certificate_as_a_start_does(tmp_path: Path) -> None:
    """A renewal that forgot the chain shows at once, and one that is due shows at each reload."""
    authority, pair = Authority(), tmp_path / "server.pem"
    chain = authority.intermediate.pem
    long, short = (authority.issue(end=days) for days in (90, 20))
    pair.write_bytes(long.pem + chain + long.key_pem())
    settings = {"tls": {"certificate": str(pair)}}
    with running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings) as host:
        assert host.host.reload().certificate_warnings == ()
        pair.write_bytes(short.pem + short.key_pem())
        report = host.host.reload()
        expires, incomplete = report.certificate_warnings
        assert ("expires in 19 days" in expires, "whole chain" in incomplete) == (True, True)
        assert (report.ok, report.certificate != "") == (True, True)
        assert host.host.reload().certificate_warnings == (expires, incomplete)


def test_a_certificate_that_is_replaced_while_it_is_read_is_not_served() -> None:
    """It would not be the one that was checked: a reload goes on with the old one, and a start ends."""
    with running_host(distributions=[plugin_distribution("hello", _Greeting())]) as host:
        serving, sites = host.host.serving, host.host.generation.sites
        read_before = replace(next(iter(serving.certificates.values())), chain=())
        with pytest.raises(CertificateError, match="was replaced while it was being read; try again"):
            serving.replace_certificate(read_before, sites, grace=20.0)
        assert _status(host, _context(host)) == 200
        starting = Serving(host.host.settings, lambda: read_before)
        starting.prepare(sites)
        with pytest.raises(CertificateError, match="was replaced while it was being read; try again"):
            starting.open(sites)
        starting.close(sites, grace=0.0)
        starting.release_prepared()
        starting.dispatcher.close(20.0)


def test_a_certificate_is_replaced_after_a_site_has_closed() -> None:
    """The listeners of the sites that are left get it."""
    installed = [plugin_distribution("hello", _Greeting()), plugin_distribution("other", _Greeting("library"))]
    with running_host(distributions=installed, settings={"tls": {"self_signed": True}}) as host:
        del installed[1]
        assert host.host.reload().removed == ("other",)
        shutil.rmtree(host.host.settings.data_dir / "tls")
        assert host.host.reload().certificate
        assert _status(host, _context(host)) == 200


@pytest.mark.parametrize(
    ("site", "warned"),
    [
        ({"address": "0.0.0.0"}, True),
        ({"address": "0.0.0.0", "listeners": ["https"]}, False),
        ({}, False),
    ],
)
def test_plain_http_beside_certificates_of_clients_is_a_warning(
    tmp_path: Path, site: dict[str, Any], warned: bool
) -> None:
    """Where others reach the HTTP port, which asks nobody for a certificate, the start warns."""
    settings = {"sites": {"main": {**site, "client_ca": str(_authority(tmp_path / "clients"))}}}
    with running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings) as host:
        assert any("sites.main.client_ca" in each for each in host.host.view.warnings) == warned


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("damaged", "must have PEM certificates"),
        ("\ufeff-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "byte order mark"),
    ],
)
def test_an_unusable_authority_of_clients_is_named(tmp_path: Path, content: str | None, reason: str) -> None:
    """The start is refused with the file, what is wrong with it, and the setting."""
    authorities = tmp_path / "clients.pem"
    if content is not None:
        authorities.write_text(content)
    settings = {"sites": {"main": {"client_ca": str(authorities)}}}
    with (
        pytest.raises(CertificateError, match=rf"{authorities}: .*{reason}.*sites\.main\.client_ca"),
        running_host(distributions=[plugin_distribution("hello", _Greeting())], settings=settings),
    ):
        pass


def _authority(path: Path) -> Path:
    """Write an authority's certificate, and beside it one of a client that it signed; return the authority's file."""
    authority = ec.generate_private_key(ec.SECP256R1())
    path.with_suffix(".pem").write_bytes(_signed("authority", authority.public_key(), authority, ca=True))
    client = ec.generate_private_key(ec.SECP256R1())
    private = client.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.with_suffix(".client").write_bytes(_signed("client", client.public_key(), authority, ca=False) + private)
    return path.with_suffix(".pem")


def _signed(name: str, public: ec.EllipticCurvePublicKey, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)
