"""Measures servers side by side: the same answers first, then bursts of load in turns."""

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
"""What the results call plughost while no plugin hangs, where they compare it with a time when one does."""

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


@dataclass(frozen=True)
class Effort:
    """How thoroughly it is measured.

    Attributes:
        rounds: How often each; the median counts.
        seconds: How long each time.
        folder: On the disk that is measured.
    """

    rounds: int
    seconds: float
    folder: Path


@dataclass
class Measured:
    """What a row measured on one lane.

    Attributes:
        row: The row's name.
        lane: The lane.
        samples: Of each server, by name, those of each round.
        refused: Why a server has no result, by name.
        fsyncs: How many a second the disk made during the rounds of a create.
    """

    row: str
    lane: Lane
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    fsyncs: list[float] = field(default_factory=list)

    def add(self, server: str, sample: Sample, *, warms_up: bool) -> None:
        """Take a sample; one with failed requests refuses the server's whole row."""
        if sample.failed or not sample.requests:
            wrong = f"{sample.failed} of {sample.requests} requests failed {sample.why}".strip()
            self.refused[server] = wrong if sample.requests else "it answered nothing"
            self.samples.pop(server, None)
        elif not warms_up and server not in self.refused:
            self.samples.setdefault(server, []).append(sample)

    def median(self, server: str, what: str) -> float:
        """Return the median of what a server's samples have under a name."""
        return float(statistics.median(getattr(sample, what) for sample in self.samples[server]))

    def ratio(self, ours: str, other: str, by: str) -> float:
        """Return how many times as good as another ours is: the median over the rounds."""
        pairs = zip(self.samples[ours], self.samples[other], strict=True)
        if by == "rate":
            return statistics.median(one.rate / two.rate for one, two in pairs)
        return statistics.median(two.cpu / one.cpu for one, two in pairs)


def measure(row: Row, lane: Lane, servers: Sequence[Server], effort: Effort) -> Measured:
    """Load servers in turns; the first round, which warms up, is left out."""
    result = Measured(row.name, lane)
    for server in servers:
        server.database.fill(row.products)
    for number in range(effort.rounds + 1):
        if number and row.durable:
            result.fsyncs.append(fsyncs(effort.folder))
        for server in servers if number % 2 else reversed(servers):
            if row.hangs:
                result.add(CALM, _burst(server, row, lane, effort), warms_up=not number)
                with _hanging(server):
                    sample = _burst(server, row, lane, effort)
            elif server.kind.name in result.refused:
                continue
            else:
                sample = _burst(server, row, lane, effort)
            result.add(server.kind.name, sample, warms_up=not number)
    return result


def _burst(server: Server, row: Row, lane: Lane, effort: Effort) -> Sample:
    headers = server.headers(row.path) | ({"Content-Type": "application/json"} if row.body else {})
    target = Target(
        method=row.method,
        url=server.url(row.path),
        headers=tuple(headers.items()),
        body=row.body,
        connections=row.connections,
    )
    cpu, commits = server.cpu(), server.database.commits(row.path)
    sample = burst(target, lane, effort.seconds * row.longer)
    return sample.watched(server.cpu() - cpu, server.database.commits(row.path) - commits)


@contextmanager
def _hanging(server: Server) -> Iterator[None]:
    """Let the store of messages hang, since somebody else holds its lock, while many want to create some."""
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
    """Return how often a second a page of a file can be written and brought to the disk, one after the other."""
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
    """See that all servers give the answers of the first one.

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
        _same(f"{row.method} {row.path}", responses)
    for method, path, body, headers, status in _REFUSALS:
        refused = {server.kind.title: server.ask(method, path, body, headers)[0] for server in servers}
        _same(f"{method} {path} {body}", {"the contract": status} | refused)


def _same(what: str, responses: Mapping[str, Any]) -> None:
    (first, expected), *others = responses.items()
    for title, answer in others:
        if answer != expected:
            raise DifferentError(f"{what}: {title} answers otherwise than {first}:\n{answer}\n{expected}")


def _answer(server: Server, method: str, path: str, body: str | None) -> tuple[int, Any]:
    status, answer = server.ask(method, path, body)
    return status, _plain(json.loads(answer, parse_float=Decimal)) if answer else None


def _plain(value: Any) -> Any:
    """Return a JSON value without what differs from server to server: of times and ids only the form is kept."""
    if isinstance(value, dict):
        return {name: _form(each) if name in _CHANGING else _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _form(value: Any) -> str:
    return re.sub(r"\d+", "1", str(value))
