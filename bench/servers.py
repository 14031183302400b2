"""The servers that are compared: how each is started, as its own documentation says, and what it uses."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from typing import Any, Final, Literal

import psutil
from bench.database import Database
from bench.sample import product

Scheme = Literal["http", "https"]

ROOT: Final = Path(__file__).parent.parent
PATIENCE: Final = 120.0
"""Seconds within which a server must serve."""

_PASSWORD_HASH: Final = "$2b$04$GwGc4HPn5Mr7UFfGgL63lOVElK6Uin.gSblVzhH.WE8tdUvHoL/NC"
_SETTINGS: Final = """
data_dir = "data"

[log]
access = {access}
format = "json"

[sites.main]
http_port = {ports[0]}
https_port = {ports[1]}
http_engine = "{engine}"

[sites.library]
http_port = {ports[2]}
https_port = {ports[3]}
http_engine = "{engine}"

[tls]
certificate = "{folder.certificate}"
key = "{folder.key}"

[plugins.catalog-v2]
max_products = 1_000_000_000

[plugins.profile-template]
rate_limit = "1000000000/minute"

[plugins.library-auth]
token_lifetime = 86400
users = [{{ email = "bench@example.org", role = "user", password_hash = "{hash}" }}]
"""


@dataclass(frozen=True)
class Kind:
    """A server as it can be chosen.

    Attributes:
        name: What the options call it.
        title: What the tables call it.
        command: How it is started; for plughost, the engine of its HTTP listeners.
        schemes: Over what it serves.
        h2: Whether it speaks HTTP/2.
        access: Whether it writes an access log.
        root: For plughost, the checkout whose environment is used.
        settings: For plughost, further tables of its settings.
    """

    name: str
    title: str
    command: str
    schemes: tuple[Scheme, ...] = ("http", "https")
    h2: bool = False
    access: bool = False
    root: Path = ROOT
    settings: str = ""

    @property
    def ours(self) -> bool:
        """Whether it is plughost."""
        return self.command in {"granian", "waitress"}

    @property
    def plughost(self) -> Path:
        """The command `plughost` of its environment; where it is installed beside the peers, as in tests, that one."""
        beside = Path(sys.executable).with_name("plughost")
        return beside if beside.exists() and self.root == ROOT else self.root / ".venv" / "bin" / "plughost"


_GRANIAN: Final = "granian --interface {} --host 127.0.0.1 --port {{port}} --no-access-log bench.peers.{}:app"
_UVICORN: Final = "uvicorn --host 127.0.0.1 --port {port} --no-access-log bench.peers.fastapi_app:app"
_GUNICORN: Final = "gunicorn --bind 127.0.0.1:{{port}} --workers {} --threads 2 --no-control-socket bench.peers.{}:app"
_TLS: Final = {
    "granian": " --ssl-certificate {certificate} --ssl-keyfile {key}",
    "uvicorn": " --ssl-certfile {certificate} --ssl-keyfile {key}",
    "gunicorn": " --certfile {certificate} --keyfile {key}",
}
_WORKERS: Final = 2 * (os.cpu_count() or 1)

OURS: Final = (
    Kind("granian", "plughost", "granian", h2=True),
    Kind("waitress", "plughost on waitress", "waitress", schemes=("http",)),
    Kind("access-log", "plughost with its access log", "granian", access=True),
)
PEERS: Final = (
    Kind("falcon", "Falcon by hand on granian (the floor)", _GRANIAN.format("wsgi", "falcon_app"), h2=True),
    Kind(
        "falcon-1",
        "the floor with one blocking thread",
        _GRANIAN.format("wsgi --blocking-threads 1", "falcon_app"),
        h2=True,
    ),
    Kind(
        "falcon-waitress",
        "the floor on waitress",
        "waitress-serve --listen 127.0.0.1:{port} bench.peers.falcon_app:app",
        schemes=("http",),
    ),
    Kind("litestar", "Litestar on granian", _GRANIAN.format("asgi", "litestar_app"), h2=True),
    Kind("fastapi", "FastAPI on uvicorn", _UVICORN),
    Kind("fastapi-2", "FastAPI on uvicorn, 2 workers", _UVICORN + " --workers 2"),
    Kind("flask", f"Flask on gunicorn, {_WORKERS} workers", _GUNICORN.format(_WORKERS, "flask_app")),
    Kind("django", f"Django REST framework on gunicorn, {_WORKERS} workers", _GUNICORN.format(_WORKERS, "django_app")),
)


class StartError(Exception):
    """A server doesn't serve."""


@dataclass(frozen=True)
class Folder:
    """Where everything of a run is kept: on a disk, since creates are measured."""

    path: Path

    @property
    def certificate(self) -> Path:
        """The certificate of every server."""
        return self.path / "certificate.pem"

    @property
    def key(self) -> Path:
        """Its key, which signs the peers' token as well."""
        return self.path / "key.pem"

    @property
    def jwk(self) -> Path:
        """The public key of the token."""
        return self.path / "jwk.json"


@dataclass
class Server:
    """A server that runs.

    Attributes:
        kind: What it is.
        scheme: Over what it is loaded.
        ports: Of its site `main` and its site `library`; a peer has one for both.
        database: What it stores in.
        process: Its first process.
        certificate: What it shows over HTTPS.
        folder: Where its settings and its log are.
        token: What opens the secured resource.
        start: Seconds from its start to its first answer.
        idle: Bytes of memory before any load.
        timeout: Seconds that an answer may take.
    """

    kind: Kind
    scheme: Scheme
    ports: tuple[int, int]
    database: Database
    process: psutil.Popen
    certificate: Path
    folder: Path
    token: str = ""
    start: float = 0.0
    idle: int = 0
    timeout: float = 2.0

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"{self.scheme}://127.0.0.1:{self.port(path)}{path}"

    def port(self, path: str) -> int:
        """Return the port that a path is reached by."""
        return self.ports[path.startswith("/mylibrary")]

    def headers(self, path: str) -> dict[str, str]:
        """Return what a request of a path sends."""
        return {"Authorization": f"Bearer {self.token}"} if path.startswith("/mylibrary") else {}

    def ask(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        sent = self.headers(path) | (headers or {}) | ({"Content-Type": "application/json"} if body else {})
        connection = HTTPConnection("127.0.0.1", self.port(path), timeout=self.timeout)
        if self.scheme == "https":
            context = create_default_context(cafile=str(self.certificate))
            connection = HTTPSConnection("127.0.0.1", self.port(path), timeout=self.timeout, context=context)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def cpu(self) -> float:
        """Return the seconds of CPU that its processes have used."""
        times = (process.cpu_times() for process in self._tree())
        return float(sum(each.user + each.system for each in times))

    def memory(self) -> int:
        """Return the bytes of memory that its processes use, what they share counted once."""
        return sum(int(process.memory_full_info().pss) for process in self._tree())

    def stop(self) -> None:
        """Stop it."""
        if self.process.is_running():
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except psutil.TimeoutExpired:
            for process in self._tree():
                process.kill()
            self.process.wait(5)

    def _tree(self) -> list[Any]:
        return [self.process, *self.process.children(recursive=True)]


def start(kind: Kind, scheme: Scheme, database: Database, folder: Folder) -> Server:
    """Start a server, and return it when it serves.

    Raises:
        StartError: It doesn't.
    """
    ports = free_ports(4)
    here = folder.path / f"{kind.name}-{scheme}-{database.engine}"
    here.mkdir(parents=True)
    # Compiled modules are kept, as where one serves; where they aren't, a start takes twice as long.
    unwanted = ("PLUGHOST_", "BENCH_", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    if kind.ours:
        settings = _SETTINGS.format(
            access=str(kind.access).lower(), ports=ports, engine=kind.command, folder=folder, hash=_PASSWORD_HASH
        )
        (here / "plughost.toml").write_text(f"{settings}\n{kind.settings}\n[stores]\n{database.settings}")
        command = [str(kind.plughost), "serve"]
        serving = (ports[scheme == "https"], ports[2 + (scheme == "https")])
    else:
        line = kind.command + (_TLS[kind.command.split()[0]] if scheme == "https" else "")
        name, *words = line.format(port=ports[0], certificate=folder.certificate, key=folder.key).split()
        command = [str(Path(sys.executable).with_name(name)), *words]
        environment |= {
            "BENCH_DATABASE": database.url,
            "BENCH_JWK": str(folder.jwk),
            "PYTHONPATH": str(ROOT),
        }
        serving = (ports[0], ports[0])
    begun = time.perf_counter()
    with (here / "log").open("wb") as log:
        process = psutil.Popen(command, cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    server = Server(kind, scheme, serving, database, process, folder.certificate, here)
    while not _serves(server):
        if not process.is_running() or process.poll() is not None or time.perf_counter() - begun > PATIENCE:
            server.stop()
            raise StartError(f"{kind.title} does not serve; it says:\n{(here / 'log').read_text()[-4000:]}")
        time.sleep(0.005)
    server.start = time.perf_counter() - begun
    server.timeout = 30.0
    return server


def kind_of(revision: str) -> Kind:
    """Return plughost as of a Git revision, in a checkout and an environment of its own."""
    command = ["git", "rev-parse", "--short", revision]
    name = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    root = ROOT / ".bench" / f"revision-{name}"
    if not root.exists():
        root.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", name], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x"], cwd=root, input=archive, check=True)
    subprocess.run([root / "dev", "serve", "--help"], check=True, stdout=subprocess.DEVNULL)  # makes its environment
    return Kind("revision", f"plughost at {name}", "granian", h2=True, root=root)


def fill(server: Server, token: str) -> None:
    """Give plughost's memory what peers start with, and each server a token."""
    server.token = token
    if server.kind.ours:
        status, answer = server.ask(
            "GET", "/mylibrary/setup/login", headers={"Authorization": "Basic YmVuY2hAZXhhbXBsZS5vcmc6YmVuY2g="}
        )
        assert status == 200, answer
        server.token = answer.decode()
        for number in range(1, 101):
            server.ask("POST", "/api/v2/products", json.dumps(product(number)))
        server.ask("GET", "/users/profile")


def _serves(server: Server) -> bool:
    try:
        return server.ask("GET", "/api/v2/products")[0] == 200
    except (OSError, HTTPException):
        return False


def free_ports(number: int) -> list[int]:
    """Return ports that nobody listens on, and that no system gives to a process that asks for any port."""
    ports: set[int] = set()
    while len(ports) < number:
        port = random.randrange(10_000, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)
