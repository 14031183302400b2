"""Measures servers side by side: compares their responses, then loads them in turns."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from bench.load import Lane, Sample, Target, burst
from bench.rows import MESSAGE, Row
from bench.servers import Server

CALM: Final = "calm"
"""The name of plughost without a hanging plugin, in rows that compare it with one."""

_CHANGING: Final = {"createdAt", "dateJoined", "expiresAt", "id", "timestamp", "updatedAt"}
_REFUSALS: Final = (
    ("GET", "/api/v2/products/none", None, {}, 404),
    ("GET", "/api/v3/products/none", None, {}, 404),
    ("GET", "/messages/77", None, {}, 404),
    ("GET", "/mylibrary/setup/secured", None, {"Authorization": "Bearer x"}, 401),
    *(
        ("POST", path, json.dumps({"sku": sku, "name": "x", "price": price, "stock": 1}), {}, status)
        for path in ("/api/v2/products", "/api/v3/products")
        for sku, price, status in (("SKU-000000000050", 1, 409), (" ", 1, 400), ("x", -1, 400))
    ),
)


class DifferentError(Exception):
    """Two servers don't give the same answer."""


@dataclass
class Measured:
    """The measurements of a row on one lane.

    Attributes:
        row: The row's name.
        lane: The lane.
        samples: The samples of each round, by server.
        refused: Why a server has no result, by server.
        fsyncs: Fsyncs a second of the disk in each round of a create.
    """

    row: str
    lane: Lane
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    fsyncs: list[float] = field(default_factory=list)

    def add(self, server: str, sample: Sample, *, warms_up: bool) -> None:
        """Add a sample. Failed requests refuse the server's whole row."""
        if sample.failed or not sample.requests:
            wrong = f"{sample.failed} of {sample.requests} requests failed {sample.why}".strip()
            self.refused[server] = wrong if sample.requests else "it answered nothing"
            self.samples.pop(server, None)
        elif not warms_up and server not in self.refused:
            self.samples.setdefault(server, []).append(sample)

    def median(self, server: str, what: str) -> float:
        """Return the median of an attribute of a server's samples."""
        return float(statistics.median(getattr(sample, what) for sample in self.samples[server]))

    def ratio(self, ours: str, other: str, by: str) -> float:
        """Return how many times better ours is than the other: the median over the rounds."""
        pairs = zip(self.samples[ours], self.samples[other], strict=True)
        if by == "rate":
            return statistics.median(one.rate / two.rate for one, two in pairs)
        return statistics.median(two.cpu / one.cpu for one, two in pairs)


def measure(row: Row, lane: Lane, servers: Sequence[Server], *, rounds: int, seconds: float, folder: Path) -> Measured:
    """Load servers in turns. The first round is a warm-up, and is not counted.

    Args:
        row: What is measured.
        lane: The lane.
        servers: The servers.
        rounds: The number of rounds that count.
        seconds: The duration of each burst.
        folder: A folder on the measured disk.
    """
    result = Measured(row.name, lane)
    for server in servers:
        server.database.fill(row.products)
    for number in range(rounds + 1):
        if number and row.durable:
            result.fsyncs.append(fsyncs(folder))
        for server in servers if number % 2 else reversed(servers):
            if row.hangs:
                result.add(CALM, _burst(server, row, lane, seconds), warms_up=not number)
                with _hanging(server):
                    sample = _burst(server, row, lane, seconds)
            elif server.kind.name in result.refused:
                continue
            else:
                sample = _burst(server, row, lane, seconds)
            result.add(server.kind.name, sample, warms_up=not number)
    return result


def _burst(server: Server, row: Row, lane: Lane, seconds: float) -> Sample:
    headers = server.headers(row.path) | ({"Content-Type": "application/json"} if row.body else {})
    target = Target(
        method=row.method,
        url=server.url(row.path),
        headers=tuple(headers.items()),
        body=row.body,
        connections=row.connections,
    )
    cpu, commits = server.cpu(), server.database.commits(row.path)
    sample = burst(target, lane, seconds * row.duration_factor)
    return sample.with_server_costs(server.cpu() - cpu, server.database.commits(row.path) - commits)


@contextmanager
def _hanging(server: Server) -> Iterator[None]:
    """Make the store of messages hang: hold its lock while many clients create messages."""
    with closing(sqlite3.connect(Path(server.database.place, "messages.sqlite3"), isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        script = str(Path(__file__).with_name("wrk.lua"))
        command = ["wrk", "-t1", "-c64", "-d60s", "-HContent-Type: application/json", "-s", script]
        command += [server.url("/messages"), "--", "POST", "hang", MESSAGE]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as load:
            time.sleep(0.5)  # until the requests have come
            yield
            load.terminate()


def fsyncs(folder: Path, seconds: float = 0.3) -> float:
    """Return how many sequential writes and fsyncs of a page the disk can do a second."""
    file = folder / "fsyncs"
    handle = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(handle, bytes(1 << 20), 0)
        os.fsync(handle)
        number, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            os.pwrite(handle, bytes(4096), number % 256 * 4096)
            os.fdatasync(handle)
            number += 1
        return number / (time.perf_counter() - begun)
    finally:
        os.close(handle)
        file.unlink()


def compare_answers(rows: Iterable[Row], servers: Sequence[Server]) -> None:
    """Check that all servers respond as the first one does.

    Raises:
        DifferentError: One doesn't.
    """
    for server in servers:
        server.database.fill(100)
    for row in rows:
        for server in servers:
            server.database.fill(row.products)
        body = row.body % (f"check-{row.name}", 1) if row.body else None
        responses = {server.kind.title: _answer(server, row.method, row.path, body) for server in servers}
        _require_equal(f"{row.method} {row.path}", responses)
    for method, path, body, headers, status in _REFUSALS:
        refused = {server.kind.title: server.ask(method, path, body, headers)[0] for server in servers}
        _require_equal(f"{method} {path} {body}", {"the contract": status} | refused)


def _require_equal(what: str, responses: Mapping[str, Any]) -> None:
    (first, expected), *others = responses.items()
    for title, answer in others:
        if answer != expected:
            raise DifferentError(f"{what}: {title} answers otherwise than {first}:\n{answer}\n{expected}")


def _answer(server: Server, method: str, path: str, body: str | None) -> tuple[int, Any]:
    status, answer = server.ask(method, path, body)
    return status, _normalized(json.loads(answer, parse_float=Decimal)) if answer else None


def _normalized(value: Any) -> Any:
    """Return a JSON value in which only the form of times and ids is kept, since they differ between servers."""
    if isinstance(value, dict):
        return {name: _form(each) if name in _CHANGING else _normalized(each) for name, each in value.items()}
    return [_normalized(each) for each in value] if isinstance(value, list) else value


def _form(value: Any) -> str:
    return re.sub(r"\d+", "1", str(value))
