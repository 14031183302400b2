"""Shared by tests of several plugins: hosts in their own processes, and clients over every listener."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import tomlkit
from tests.host.plugins import is_running
from tests.waiting import wait_until

from plughost._runtime.control import send_command

PATIENCE: Final = 120.0
"""Seconds after which something that was waited for has failed to happen."""


ALL: Final = bool(os.environ.get("PLUGHOST_TEST_ALL"))
"""Whether every case is tried, as CI does, where a developer's run makes do with some of each kind."""


@dataclass(frozen=True)
class Lane:
    """One way to reach a host over HTTP.

    Attributes:
        scheme: The listener.
        http2: Whether HTTP/2 is spoken.
    """

    scheme: str
    http2: bool = False

    def __str__(self) -> str:
        """Return the lane's name in test ids."""
        return f"{self.scheme}{'-2' if self.http2 else ''}"


LANES: Final = (Lane("http"), Lane("https"), Lane("https", http2=True))


@dataclass(frozen=True)
class Usage:
    """The resources that a process uses.

    Attributes:
        memory: Resident bytes.
        threads: Threads.
        files: Open file descriptors.
    """

    memory: int
    threads: int
    files: int


class HostProcess:
    """A host in its own process.

    Attributes:
        process: The process.
        data_dir: Its data folder.
        errors: The file that has its standard error.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        """Wrap a started host."""
        self.process = process
        self.data_dir = folder / "data"
        self.errors = folder / "errors.txt"
        listeners = self.ask("status")["listeners"]
        self._ports = {(each["site"], each["scheme"]): int(each["port"]) for each in listeners}

    def ask(self, command: str, **arguments: Any) -> Any:
        """Send it a command, and return its answer."""
        return send_command(self.data_dir, command, **arguments)

    def no_tracebacks(self) -> None:
        """Fail with the log's lines that have a traceback, if there are any."""
        lines = [line for line in self.errors.read_text(encoding="utf-8").splitlines() if "Traceback" in line]
        assert not lines, "\n".join(lines)

    def port(self, site: str = "main", scheme: str = "http") -> int:
        """Return the port of a listener."""
        return self._ports[site, scheme]

    def url(self, site: str = "main", scheme: str = "http") -> str:
        """Return the URL of a listener."""
        return f"{scheme}://127.0.0.1:{self.port(site, scheme)}"

    @property
    def tls(self) -> ssl.SSLContext:
        """A TLS context that trusts only its self-signed certificate."""
        return ssl.create_default_context(cafile=str(self.data_dir / "tls" / "certificate.pem"))

    def client(self, lane: Lane = LANES[0], site: str = "main", **options: Any) -> httpx.Client:
        """Return a client for a lane."""
        verify: ssl.SSLContext | bool = self.tls if lane.scheme == "https" else True
        settings: dict[str, Any] = {"timeout": PATIENCE, "trust_env": False, "verify": verify, **options}
        return httpx.Client(base_url=self.url(site, lane.scheme), http1=not lane.http2, http2=lane.http2, **settings)

    def usage(self) -> Usage:
        """Return the resources that its process uses now."""
        proc = Path("/proc", str(self.process.pid))
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        return Usage(
            memory=int(status["VmRSS"].split()[0]) * 1024,
            threads=int(status["Threads"]),
            files=len(list((proc / "fd").iterdir())),
        )

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def write_settings(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write the settings of a host with its data in `folder/data`, on ports that the system chooses."""
    free = {"http_port": 0, "https_port": 0}
    given = settings.get("sites", {})
    sites = {site: {**free, **given.get(site, {})} for site in ("main", "library", "admin")}
    file = folder / "plughost.toml"
    fresh = folder / "plughost.toml.new"
    fresh.write_text(tomlkit.dumps({"data_dir": "data", "log": {"access": False}, **settings, "sites": sites}))
    fresh.replace(file)
    return file


@contextmanager
def host_process(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    *,
    python: Path | str = sys.executable,
    arguments: Sequence[str] = (),
    under: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[HostProcess]:
    """Run `plughost serve --dev` for the length of a `with` block; it is killed at the end if it still runs.

    Args:
        folder: Where its settings and data are.
        settings: What `plughost.toml` holds, beside ports and the data folder.
        python: The interpreter of the environment that it runs in.
        arguments: Further arguments of `plughost serve`.
        under: A command that runs another one, to run it.
        environment: Variables beside those of this process.
    """
    file = write_settings(folder, settings or {})
    command = [
        *under,
        str(python),
        "-P",
        "-c",
        "from plughost._cli import main; main()",
        "serve",
        "--dev",
        "--config",
        file.name,
    ]
    with (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
    assert process.stdout is not None
    try:
        wait_until(lambda: process.poll() is not None or is_running(folder / "data"))
        assert process.poll() is None, f"the host did not start: {(folder / 'errors.txt').read_text()}"
        yield HostProcess(process, folder)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
