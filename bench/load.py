"""Loading servers side by side: each in a process of its own, in turns, so that what the machine does hits all."""

from __future__ import annotations

import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
BODY: Final = '{"sku": "SKU-000000000000", "name": "Green tea, 250 g", "price": 19.99, "stock": 12}'
KEEP_ALIVE: Final = ("--h1", "-c16", "-m1")
MULTIPLEXED: Final = ("-c4", "-m8")

_REQUESTS: Final = re.compile(r"requests: .* (\d+) done, (\d+) succeeded")
_STATUSES: Final = re.compile(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx")
_RATE: Final = re.compile(r"finished in .*, ([\d.]+) req/s")


@dataclass(frozen=True)
class Sample:
    """What one burst of load measured.

    Attributes:
        rate: Requests answered a second.
        cpu: CPU microseconds of the server for each.
    """

    rate: float
    cpu: float


class Server:
    """A server in a process of its own, which doesn't share an interpreter lock with the load."""

    def __init__(self, *arguments: str, scheme: str = "http") -> None:
        """Start it.

        Args:
            *arguments: What `bench.serve` is started with.
            scheme: `http` or `https`.
        """
        command = [sys.executable, "-m", "bench.serve", *arguments, "--scheme", scheme]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        port = self._answer()
        if not port:
            raise SystemExit(f"{' '.join(command)} does not start; run it to see why")
        self._base = f"{scheme}://127.0.0.1:{int(port)}"

    def measure(self, method: str, path: str, seconds: float, connections: Sequence[str] = KEEP_ALIVE) -> Sample:
        """Load it, and return what that measured.

        Args:
            method: `GET`, or `POST`, which creates a product.
            path: What is asked for.
            seconds: For how long.
            connections: How h2load connects: the version of HTTP, connections, requests in flight on each.
        """
        body = (f"-d{_body_file()}", "-Hcontent-type: application/json") if method == "POST" else ()
        before = self._cpu()
        command = ["h2load", "-t1", *connections, f"-D{int(seconds * 1000)}ms", *body, self._base + path]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cpu = self._cpu() - before
        done, succeeded = map(int, _find(_REQUESTS, output).groups())
        if done != succeeded or int(_find(_STATUSES, output)[1]) == 0:
            raise SystemExit(f"{' '.join(command)}: not every request succeeded:\n{output}")
        return Sample(float(_find(_RATE, output)[1]), cpu / done * 1e6)

    def close(self) -> None:
        """Stop it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)

    def _cpu(self) -> float:
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        return self._process.stdout.readline() if self._process.stdout is not None else ""


@dataclass(frozen=True)
class Load:
    """What servers are compared by.

    Attributes:
        rounds: How often each is measured; the median counts.
        seconds: How long each measurement takes.
    """

    rounds: int
    seconds: float

    def compare(
        self, servers: Mapping[str, Server], method: str, path: str, connections: Sequence[str] = KEEP_ALIVE
    ) -> dict[str, list[Sample]]:
        """Measure servers in turns, and return the samples of each; the first round, which warms up, is left out."""
        samples: dict[str, list[Sample]] = {name: [] for name in servers}
        for number in range(self.rounds + 1):
            for name in servers if number % 2 else reversed(list(servers)):
                sample = servers[name].measure(method, path, self.seconds, connections)
                if number:
                    samples[name].append(sample)
        return samples


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Return the median of the ratios, each of two measurements that were taken side by side."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def median(samples: Sequence[Sample]) -> Sample:
    """Return the medians of samples."""
    return Sample(statistics.median(each.rate for each in samples), statistics.median(each.cpu for each in samples))


def mean(samples: Sequence[Sample]) -> Sample:
    """Return the means of samples, such as those of several processes of a server: no two are equally fast."""
    return Sample(statistics.mean(each.rate for each in samples), statistics.mean(each.cpu for each in samples))


def error(ratios: Sequence[float]) -> float:
    """Return the standard error of the mean of ratios."""
    return statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else math.nan


def need_h2load() -> None:
    """End the program where there is no load generator."""
    if shutil.which("h2load") is None:
        raise SystemExit(
            "This needs h2load: install nghttp2-client (Debian, Ubuntu), nghttp2 (Fedora, Homebrew, Arch)."
        )


def _body_file() -> Path:
    file = Path(tempfile.gettempdir(), "plughost-bench-body.json")
    file.write_text(BODY)
    return file


def _find(pattern: re.Pattern[str], output: str) -> re.Match[str]:
    found = pattern.search(output)
    if found is None:
        raise SystemExit(f"h2load says something else than expected:\n{output}")
    return found
