"""A replaced certificate file: what clients see, what plugins report, and what a reload does."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import Counter
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from .environments import PATIENCE, Sandbox, Served
from .wheels import build_wheel, speaker_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SETTINGS: Final = """\
data_dir = "data"
grace_time = 20

[tls]
certificate = "server.pem"
key = "server.key"

[sites.main]
listeners = ["https"]
https_port = 0
"""
_SLOW: Final = """
from pathlib import Path
from time import sleep
from plughost import Operation, Route, RouteGroup, hookimpl


class Wait:
    def on_get(self, req, resp):
        Path("begun").touch()
        while not Path("go").exists():
            sleep(0.01)
        resp.media = {"waited": True}


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/wait", routes=(Route("", Wait(), {"GET": Operation(summary="Wait")}),))]
"""


def put_certificate(sandbox: Sandbox, name: str, days: float = 90, key: Any = None) -> None:
    """Replace the certificate of the settings, with a key that may not match."""
    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(own, hashes.SHA256())
    )
    private = (key or own).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, content in (("server.pem", certificate.public_bytes(Encoding.PEM)), ("server.key", private)):
        fresh = sandbox.folder / f"{file}.new"
        fresh.write_bytes(content)
        fresh.replace(sandbox.folder / file)


OTHERS_KEY: Final = ec.generate_private_key(ec.SECP256R1())


class Client:
    """A client of the HTTPS listener that writes HTTP/1.1 itself, and trusts any certificate."""

    def __init__(self, host: Served) -> None:
        """Connect to the listener."""
        port = int(host.url(scheme="https").rpartition(":")[2])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        try:
            self._connection = context.wrap_socket(connection)
        except OSError:
            connection.close()
            raise
        self._answers = self._connection.makefile("rb")
        shown = x509.load_der_x509_certificate(self._connection.getpeercert(binary_form=True) or b"")
        self.shown = str(shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def ask(self, path: str) -> None:
        """Send a request."""
        self._connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def answer(self) -> tuple[int, bool, bytes]:
        """Return status, whether the connection can be reused, and body; status 0 if there is no answer."""
        head = b"".join(iter(self._answers.readline, b"\r\n") if (line := self._answers.readline()) else ())
        if not line:
            return 0, False, b""
        fields = dict(row.lower().split(b": ", 1) for row in head.splitlines())
        return (
            int(line.split()[1]),
            fields.get(b"connection") != b"close",
            self._answers.read(int(fields[b"content-length"])),
        )

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._connection.close()


def shown_by(host: Served) -> str:
    """Return the name in the certificate on a new connection."""
    with closing(Client(host)) as client:
        return client.shown


def is_shown(host: Served, name: str) -> bool:
    """Return whether a new connection gets a name's certificate; the grace time may end during a handshake."""
    try:
        return shown_by(host) == name
    except (ssl.SSLEOFError, ConnectionError):  # the old certificate's server still accepted it
        return False


@contextmanager
def asking(host: Served, path: str, *, keep: bool) -> Iterator[Counter[int]]:
    """Send requests without a pause, over kept or new connections; count the answers by status."""
    answered: Counter[int] = Counter()
    enough = threading.Event()

    def ask_on() -> None:
        client = None
        while not enough.is_set():
            client = client or Client(host)
            client.ask(path)
            status, usable, _ = client.answer()
            answered[status] += 1
            if not usable or not keep:
                client.close()
                client = None
        if client is not None:
            client.close()

    threads = [threading.Thread(target=ask_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield answered
    finally:
        enough.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def serving(sandbox: Sandbox) -> Iterator[Served]:
    """A host with the certificate of `first.test`, and plugins that report on it."""
    (sandbox.folder / "plughost.toml").write_text(_SETTINGS)
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    sandbox.put(build_wheel(sandbox.wheels, "plughost-slow", "1.0", {"slow.py": _SLOW}, plugins={"slow": "slow"}))
    put_certificate(sandbox, "first.test")
    with sandbox.serving() as host:
        yield host


def test_reports_show_the_certificate_in_use(sandbox: Sandbox, serving: Served) -> None:
    """A new certificate file that isn't used yet is reported as such, not as the one in use."""
    before = serving.status()["certificate"]
    put_certificate(sandbox, "second.test", days=30)
    after = serving.status()["certificate"]
    assert shown_by(serving) == "first.test"
    assert (after["names"], after["sha256"]) == (["first.test"], before["sha256"])
    assert after["on_disk"].startswith("another one, until")
    assert "run plughost reload" in sandbox.run("status")
    assert sandbox.json("cert", "show")["served"] is False
    assert "The running host still uses another one" in sandbox.run("cert", "show")


def test_a_reload_uses_the_new_certificate_and_loses_no_request(sandbox: Sandbox, serving: Served) -> None:
    """New connections get it at once; requests in flight, on kept and on new connections are all answered."""
    slow = Client(serving)
    slow.ask("/wait")
    while not (sandbox.folder / "begun").exists():
        threading.Event().wait(0.01)
    with asking(serving, "/greeter", keep=True) as kept, asking(serving, "/greeter", keep=False) as fresh:
        put_certificate(sandbox, "second.test")
        output: list[str] = []
        reload = threading.Thread(target=lambda: output.append(sandbox.run("reload")))
        reload.start()
        while shown_by(serving) != "second.test":
            pass
        (sandbox.folder / "go").touch()
        reload.join()
    assert "for second.test, until" in output[0]
    assert slow.answer()[0] == 200
    assert set(kept) == set(fresh) == {200}
    assert serving.status()["certificate"]["names"] == ["second.test"]
    assert serving.status()["certificate"]["on_disk"] == "the same"
    slow.close()


def test_other_certificate_files_in_the_settings_take_effect(sandbox: Sandbox, serving: Served) -> None:
    """A reload uses the files that the settings name now; if they don't exist, the old certificate stays."""
    file = sandbox.folder / "plughost.toml"
    put_certificate(sandbox, "second.test")
    for name in ("server.pem", "server.key"):
        (sandbox.folder / name).rename(sandbox.folder / f"other-{name}")
    file.write_text(_SETTINGS.replace('"server.', '"other-server.'))
    report = json.loads(sandbox.run("reload", "--json"))
    assert (report["restart_needed"], shown_by(serving)) == ([], "second.test")
    file.write_text(_SETTINGS.replace('"server.', '"missing.'))
    report = json.loads(sandbox.run("reload", "--json", code=1))
    assert "missing.pem" in report["certificate_refused"]
    assert shown_by(serving) == "second.test"


@pytest.mark.thorough
def test_ten_new_certificates_in_a_row_lose_no_connection(sandbox: Sandbox, serving: Served) -> None:
    """During each change, either the old or the new engine answers a connection."""
    with asking(serving, "/greeter", keep=True) as kept, asking(serving, "/greeter", keep=False) as fresh:
        for number in range(10):
            put_certificate(sandbox, f"name-{number}.test")
            assert f"for name-{number}.test, until" in sandbox.run("reload")
    assert set(kept) == set(fresh) == {200}


def test_the_end_of_the_grace_time_cuts_off_no_new_connection(sandbox: Sandbox, serving: Served) -> None:
    """Of two requests that outlast it, only the one under the old certificate is cut off."""
    (sandbox.folder / "plughost.toml").write_text(_SETTINGS.replace("grace_time = 20", "grace_time = 1"))
    old = Client(serving)
    old.ask("/wait")
    while not (sandbox.folder / "begun").exists():
        threading.Event().wait(0.01)
    (sandbox.folder / "begun").unlink()
    put_certificate(sandbox, "second.test")
    reload = threading.Thread(target=lambda: sandbox.run("reload"))
    reload.start()
    while not is_shown(serving, "second.test"):
        pass
    new = Client(serving)
    new.ask("/wait")
    while not (sandbox.folder / "begun").exists():
        threading.Event().wait(0.01)
    reload.join()
    (sandbox.folder / "go").touch()
    with closing(old), closing(new):
        assert new.answer()[0] == 200
        assert old.answer()[0] == 0


@pytest.mark.parametrize(
    ("replace", "why"),
    [
        (
            lambda box: put_certificate(box, "x.test", key=OTHERS_KEY),
            "is not the private key",
        ),
        (lambda box: put_certificate(box, "x.test", days=-1), "the certificate expired on"),
        (lambda box: (box.folder / "server.pem").unlink(), "there is no such file"),
        (lambda box: (box.folder / "server.key").write_text("-----BEGIN PRIVATE KEY-----\n"), "server.key"),
    ],
    ids=["another key", "expired", "missing", "damaged"],
)
def test_an_unusable_certificate_is_refused_and_the_old_one_stays(
    sandbox: Sandbox, serving: Served, replace: Callable[[Sandbox], None], why: str
) -> None:
    """The plugins are reloaded, the certificate isn't: the report says why, and the exit code is 1."""
    replace(sandbox)
    sandbox.put(speaker_wheel(sandbox.wheels, "other", "1.0", "other"))
    report = json.loads(sandbox.run("reload", "--json", code=1))
    assert report["swapped"]
    assert report["added"] == ["other"]
    assert why in report["certificate_refused"]
    assert shown_by(serving) == "first.test"
    assert serving.status()["certificate"]["names"] == ["first.test"]
    assert Path(serving.status()["certificate"]["file"]).name == "server.pem"
