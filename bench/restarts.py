"""What `plughost restart` and `plughost reload` cost those who are being answered: requests lost, by kind of client.

`python bench/restarts.py [--times 20] [--command reload]` runs a host with catalog-v2 and lets clients ask without a
pause while it is restarted again and again. A request counts as lost if it gets no answer, or another one than 200. A
kept HTTP/1.1 connection that is closed before any of an answer has come is reconnected once, as browsers and most
libraries do by themselves (RFC 9112, 9.3.1); that is counted apart. The HTTP/2 clients are curl, which goes by the
server's GOAWAY (RFC 9113, 6.8), and httpx, which takes one for an error.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx

from plughost._runtime.control import socket_path

PATH: Final = "/api/v2/products"
PLUGHOST: Final = str(Path(sys.executable).with_name("plughost"))
SETTINGS: Final = "[log]\naccess = false\n[sites.main]\nhttp_port = 0\nhttps_port = 0\n[sites.library]\nhttp_port = 0\n"


class Client:
    """Asks without a pause, or with one, and counts."""

    def __init__(self, title: str, ask: Callable[[Counter[str]], int], pause: float = 0.0) -> None:
        self.title = title
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0
        self._ask = ask
        self._pause = pause

    def run(self, stop: threading.Event) -> None:
        """Ask until stopped."""
        while not stop.is_set():
            begun = time.perf_counter()
            try:
                status = self._ask(self.counts)
                self.counts["answered" if status == 200 else f"status {status}"] += 1
            except (OSError, http.client.HTTPException, httpx.HTTPError) as error:
                self.counts[f"{type(error).__name__}: {error}"[:120]] += 1
            self.slowest = max(self.slowest, time.perf_counter() - begun)
            time.sleep(self._pause)


def fresh(make: Callable[[], http.client.HTTPConnection]) -> Callable[[Counter[str]], int]:
    """Return what asks once on a connection of its own."""

    def ask(counts: Counter[str]) -> int:
        connection = make()
        try:
            connection.request("GET", PATH, headers={"Connection": "close"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    return ask


def kept(make: Callable[[], http.client.HTTPConnection]) -> Callable[[Counter[str]], int]:
    """Return what asks on one connection for as long as that lasts."""
    connection = make()

    def once() -> int:
        connection.request("GET", PATH)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def ask(counts: Counter[str]) -> int:
        reused = connection.sock is not None
        try:
            return once()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connection.close()
            if not reused:
                raise
            counts["reconnected"] += 1
            return once()

    return ask


class Curl(Client):
    """Asks with curl, one request after the other on one HTTP/2 connection, for as long as that lasts."""

    def __init__(self, url: str, certificate: Path) -> None:
        super().__init__("HTTP/2, kept, busy (curl)", lambda _: 0)
        options = ["--write-out", "%{http_code} %{http_version} %{time_total}\\n", "--output", os.devnull]
        trusted = ["--cacert", str(certificate), "--http2", "--silent"]
        self._command = ["curl", *trusted, *options, f"{url}?[1-99999999]"]

    def run(self, stop: threading.Event) -> None:
        """Ask until stopped."""
        with subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                status, version, seconds = line.split()
                self.counts["answered" if (status, version) == ("200", "2") else f"{status} by HTTP/{version}"] += 1
                self.slowest = max(self.slowest, float(seconds))
                if stop.is_set():
                    break
            process.terminate()


def clients(ports: dict[str, int], certificate: Path) -> list[Client]:
    """Return one client of each kind."""
    trusted = ssl.create_default_context(cafile=str(certificate))

    def plain() -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=60)

    def secure() -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("localhost", ports["https"], timeout=60, context=trusted)

    def multiplexed() -> Callable[[Counter[str]], int]:
        client = httpx.Client(http1=False, http2=True, verify=trusted, trust_env=False, timeout=60)
        return lambda _: client.get(url).status_code

    url = f"https://localhost:{ports['https']}{PATH}"
    return [
        Client("HTTP, new connections", fresh(plain)),
        Client("HTTP, kept, busy", kept(plain)),
        Client("HTTP, kept, a request every 0.4 s", kept(plain), pause=0.4),
        Client("HTTPS, new connections", fresh(secure)),
        Client("HTTPS, kept, busy", kept(secure)),
        Client("HTTPS, kept, a request every 0.4 s", kept(secure), pause=0.4),
        *([Curl(url, certificate)] if shutil.which("curl") else []),
        Client("HTTP/2, kept, busy (httpx)", multiplexed()),
        Client("HTTP/2, kept, a request every 0.4 s (httpx)", multiplexed(), pause=0.4),
    ]


def command(folder: Path, *arguments: str) -> Any:
    """Run a command of plughost, and return its result."""
    ended = subprocess.run([PLUGHOST, *arguments, "--json"], cwd=folder, check=True, stdout=subprocess.PIPE)
    return json.loads(ended.stdout)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--command", choices=("restart", "reload"), default="restart")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plughost-bench-") as name:
        folder = Path(name)
        (folder / "plughost.toml").write_text(SETTINGS)
        with (folder / "log").open("wb") as log:
            host = subprocess.Popen([PLUGHOST, "serve", "--dev"], cwd=folder, stderr=log)
        while not socket_path(folder / "plughost-data").exists():
            assert host.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        ports = {
            each["scheme"]: each["port"] for each in command(folder, "status")["listeners"] if each["site"] == "main"
        }
        measured = clients(ports, folder / "plughost-data" / "tls" / "certificate.pem")
        stop = threading.Event()
        threads = [threading.Thread(target=each.run, args=(stop,)) for each in measured]
        for thread in threads:
            thread.start()
        seconds = []
        for _ in range(given.times):
            time.sleep(1.0)
            message = command(folder, given.command)
            seconds.append(message["seconds"] if given.command == "restart" else message["seconds"]["total"])
        time.sleep(1.0)
        stop.set()
        for thread in threads:
            thread.join()
        os.kill(command(folder, "status")["pid"], signal.SIGTERM)
        host.wait()
    print(f"{given.times} times {given.command}, {min(seconds):.2f} to {max(seconds):.2f} s each")
    print("| clients | requests | lost | reconnected | slowest answer |")
    print("|---|---|---|---|---|")
    for each in measured:
        lost = {what: count for what, count in each.counts.items() if what not in {"answered", "reconnected"}}
        message = f"{sum(lost.values())}{f' ({dict(lost)})' if lost else ''}"
        total = each.counts["answered"] + sum(lost.values())
        print(f"| {each.title} | {total} | {message} | {each.counts['reconnected']} | {each.slowest * 1000:.0f} ms |")


if __name__ == "__main__":
    main()
