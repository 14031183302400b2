"""Loads a server with wrk over HTTP/1.1 and h2load over HTTP/2, and returns their measurements."""

from __future__ import annotations

import itertools
import re
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from bench import h2

Lane = Literal["http", "https", "h2"]
LANES: Final[dict[Lane, str]] = {"http": "HTTP/1.1", "https": "HTTPS, HTTP/1.1", "h2": "HTTPS, HTTP/2"}
PACKAGES: Final = {"wrk": "wrk", "h2load": "nghttp2-client (Fedora, Arch, Homebrew: nghttp2)"}

_H2_STREAMS: Final = 8
_WRK: Final = re.compile(r"^BENCH( \d+){9}$", re.MULTILINE)
_FAILURES: Final = ("no connection", "no answer", "not sent", "status", "time-out")
_H2LOAD_FAILED: Final = re.compile(r"(\d+) failed, (\d+) errored, (\d+) timeout")
_prefixes: Final = itertools.count(time.time_ns() // 1_000_000)


class LoadError(Exception):
    """A load generator is missing, or failed."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The requests of a burst.

    Attributes:
        method: `GET` or `POST`.
        url: Their URL.
        headers: Further headers.
        body: The body of a POST. `%s` and `%d` in it are replaced, so that each body is unique.
        connections: The number of concurrent clients; over HTTP/2, of streams.
    """

    method: str = "GET"
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    connections: int = 32


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The measurements of a burst.

    Attributes:
        requests: The number of requests with a response.
        rate: Requests a second.
        p50: Their median time, in milliseconds.
        p99: The 99th percentile of their times, in milliseconds.
        failed: The number of requests with an error or no response.
        cpu: CPU microseconds of the server for each request; set by `with_server_costs`.
        creates_per_commit: Creates in each commit of the server; set by `with_server_costs`. 0 if unknown.
        why: The failures that the load generator reports.
    """

    requests: int
    rate: float
    p50: float
    p99: float
    failed: int
    cpu: float = 0.0
    creates_per_commit: float = 0.0
    why: str = ""

    def with_server_costs(self, seconds: float, commits: int) -> Sample:
        """Return a copy with the costs of all requests: CPU seconds and commits."""
        creates_per_commit = self.requests / commits if commits else 0.0
        return replace(self, cpu=seconds / max(self.requests, 1) * 1e6, creates_per_commit=creates_per_commit)


def require_tools(lanes: tuple[Lane, ...]) -> None:
    """Check that the load generators are installed.

    Raises:
        LoadError: One is missing. The message says what to install.
    """
    wanted = {"h2load" if lane == "h2" else "wrk" for lane in lanes}
    missing = sorted(tool for tool in wanted if shutil.which(tool) is None)
    if missing:
        packages = " ".join(PACKAGES[tool].split(" ")[0] for tool in missing)
        raise LoadError(
            f"{' and '.join(missing)} can't be found, which the load comes from. On Debian and Ubuntu: apt install"
            f" {packages}. Elsewhere: {', '.join(f'{tool} is in {PACKAGES[tool]}' for tool in missing)}."
        )


def burst(target: Target, lane: Lane, seconds: float) -> Sample:
    """Load a server for some seconds, and return the measurements.

    Raises:
        LoadError: The load generator failed.
    """
    if lane == "h2":
        return _h2_creates(target, seconds) if target.body else _h2load(target, seconds)
    return _wrk(target, seconds)


def _wrk(target: Target, seconds: float) -> Sample:
    script = Path(__file__).with_name("wrk.lua")
    headers = [word for name, value in target.headers for word in ("-H", f"{name}: {value}")]
    command = ["wrk", "-t1", f"-c{target.connections}", f"-d{max(round(seconds), 1)}s", "-s", str(script), *headers]
    command += [target.url, "--", target.method]
    if target.body:
        command += [f"{next(_prefixes):x}", target.body]
    found = _WRK.search(_run(command))
    if found is None:
        raise LoadError(f"{' '.join(command)}: wrk printed no result")
    requests, microseconds, p50, p99, *failures = map(int, found[0].split()[1:])
    why = ", ".join(f"{number} {what}" for what, number in zip(_FAILURES, failures, strict=True) if number)
    return Sample(
        requests=requests,
        rate=requests / microseconds * 1e6,
        p50=p50 / 1000,
        p99=p99 / 1000,
        failed=sum(failures),
        why=why,
    )


def _h2_creates(target: Target, seconds: float) -> Sample:
    prefix, numbers = f"{next(_prefixes):x}", itertools.count(10_000_000)
    size = str(len(target.body % (prefix, 10_000_000)))
    headers = [*target.headers, ("content-length", size)]
    clients = max(target.connections // _H2_STREAMS, 1)

    def body() -> bytes:
        return (target.body % (prefix, next(numbers))).encode()

    times, failed = h2.post(
        target.url,
        headers,
        body,
        (clients, _H2_STREAMS),
        seconds,
    )
    return _sample([each * 1000 for each in times], seconds, failed)


def _sample(times: list[float], seconds: float, failed: int) -> Sample:
    quantiles = statistics.quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return Sample(requests=len(times), rate=len(times) / seconds, p50=quantiles[49], p99=quantiles[98], failed=failed)


def _h2load(target: Target, seconds: float) -> Sample:
    headers = [f"-H{name}: {value}" for name, value in target.headers]
    clients = max(target.connections // _H2_STREAMS, 1)
    log = Path(f"/tmp/bench-{next(_prefixes)}.log")
    command = ["h2load", "-t1", f"-c{clients}", f"-m{_H2_STREAMS}", f"-D{seconds:g}", f"--log-file={log}", *headers]
    try:
        output = _run([*command, target.url])
        lines = [line.split("\t") for line in log.read_text().splitlines()]
    finally:
        log.unlink(missing_ok=True)
    failed = _H2LOAD_FAILED.search(output)
    if failed is None:
        raise LoadError(f"{' '.join(command)}: h2load says something else than expected:\n{output}")
    wrong = sum(not line[1].startswith("2") for line in lines)
    return _sample([int(line[2]) / 1000 for line in lines], seconds, wrong + sum(map(int, failed.groups())))


def _run(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise LoadError(f"{' '.join(command)} ended with {ended.returncode}: {ended.stderr or ended.stdout}")
    return ended.stdout
