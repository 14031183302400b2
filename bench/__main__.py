"""Measures plughost and its alternatives. `./dev bench --help` explains the options."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, Final

import jwt
from bench.database import Database, Engine, drop_database, make_database
from bench.load import LANES, Lane, LoadError, require_tools
from bench.measure import DifferentError, compare_answers, measure
from bench.postgresql import postgresql
from bench.reloads import watch_reloads
from bench.report import Report
from bench.rows import QUICK, ROWS, Row
from bench.servers import OURS, PEERS, ROOT, Folder, Kind, Scheme, Server, StartError, fill, kind_of, start
from bench.tracing import HOST, watch_traces
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import RSAAlgorithm

SCHEMES: Final[tuple[Scheme, ...]] = ("http", "https")
ENGINES: Final[tuple[Engine, ...]] = ("sqlite", "postgresql")
EPILOG: Final = f"""rows: {", ".join(row.name for row in ROWS)}
servers: {", ".join(kind.name for kind in (*OURS, *PEERS))}
Both may be patterns, such as 'stored-*'."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=QUICK, help="what to measure (default: %(default)s)")
    parser.add_argument("--servers", default="*", help="what to measure it on (default: all)")
    parser.add_argument("--lanes", default="http", help="of http, https and h2 (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often; the median counts (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each time (default: %(default)s)")
    parser.add_argument("--full", action="store_true", help="all rows, all lanes, 7 rounds: about an hour")
    parser.add_argument("--against", metavar="REVISION", help="measure plughost as of a Git revision beside it")
    parser.add_argument("--reloads", type=int, help="instead, watch the memory over so many reloads under load")
    parser.add_argument("--traces", type=int, help="instead, tell what traces cost, by so many turns")
    parser.add_argument("--sample", type=float, default=0.0, help="for --traces, how many requests are sampled")
    parser.add_argument("--write", action="store_true", help="put the tables and pictures into docs/performance.md")
    given = parser.parse_args()
    if given.full:
        given.rows, given.lanes, given.rounds = "*", ",".join(LANES), 7
    rows = choose(ROWS, given.rows)
    kinds = choose((*OURS, *PEERS), given.servers)
    lanes = tuple(lane for lane in LANES if lane in given.lanes.split(","))
    try:
        require_tools(lanes)
        if given.reloads:
            os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # as the unit file of docs/operators/serving.md has it
            with scratch() as (folder, token), running(OURS[:1], "http", "sqlite", folder, token) as (server,):
                watch_reloads(server, given.reloads, write=given.write)
            return
        if given.traces:
            with scratch() as (folder, token), running([HOST], "http", "sqlite", folder, token) as (server,):
                print("\n".join(watch_traces(server, given.traces, given.seconds, given.sample)))
            return
        if given.against:
            kinds.insert(1, kind_of(given.against))
        report = run(rows, kinds, lanes, given.rounds, given.seconds)
    except (LoadError, StartError, DifferentError) as error:
        raise SystemExit(f"bench: {error}") from error
    print("\n".join(report.summary()))
    if given.write:
        report.write(" ".join(["./dev bench", *sys.argv[1:]]))


def choose(all_of_them: Sequence[Any], patterns: str) -> list[Any]:
    """Return the items that match the patterns.

    Raises:
        SystemExit: A pattern matches nothing.
    """
    names = patterns.split(",")
    for name in names:
        if not any(fnmatchcase(each.name, name) for each in all_of_them):
            raise SystemExit(f"bench: there is no {name}; there are {', '.join(each.name for each in all_of_them)}")
    return [each for each in all_of_them if any(fnmatchcase(each.name, name) for name in names)]


def run(rows: Sequence[Row], kinds: Sequence[Kind], lanes: Sequence[Lane], rounds: int, seconds: float) -> Report:
    """Measure, print each table as soon as it is complete, and return the report."""
    report = Report(kinds)
    with scratch() as (folder, token):
        for scheme, engine in product(SCHEMES, ENGINES):
            wanted = [row for row in rows if row.engine == engine]
            ways = [lane for lane in lanes if (lane == "http") == (scheme == "http")]
            if not wanted or not ways:
                continue
            with running(kinds, scheme, engine, folder, token) as servers:
                compare_answers(wanted, servers)
                for row, lane in product(sorted(wanted, key=lambda each: each.method), ways):
                    able = [each for each in servers if is_measured(each.kind, row, lane)]
                    result = measure(row, lane, able, rounds=rounds, seconds=seconds, folder=folder.path)
                    print("\n".join(report.details(result)), flush=True)
                    report.results.append(result)
                report.record_start(servers)
    return report


def is_measured(kind: Kind, row: Row, lane: Lane) -> bool:
    """Return whether a server is measured on a row and a lane."""
    if (row.hangs and kind.name != "granian") or (kind.access and row.name != "get"):
        return False
    return lane != "h2" or kind.h2


@contextmanager
def scratch() -> Iterator[tuple[Folder, str]]:
    """Make a folder for a run, with keys, on the disk of the checkout."""
    place = ROOT / ".bench"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=place, ignore_cleanup_errors=True) as name:
        folder = Folder(Path(name))
        yield folder, make_keys(folder)


@contextmanager
def running(
    kinds: Sequence[Kind], scheme: Scheme, engine: Engine, folder: Folder, token: str
) -> Iterator[list[Server]]:
    """Start servers, each with its own database, and stop them at the end."""
    with ExitStack() as stack:
        if engine == "postgresql":
            url = stack.enter_context(postgresql())
        servers = []
        for kind in (each for each in kinds if scheme in each.schemes):
            if engine == "postgresql":
                name = f"plughost_bench_{kind.name}".replace("-", "_")
                database = Database(engine, make_database(url, name))
                stack.callback(drop_database, url, name)
            else:
                stores = f"{kind.name}-{scheme}-{engine}/data/stores"
                database = Database(
                    engine, str(folder.path / (stores if kind.ours else f"{kind.name}-{scheme}.sqlite3"))
                )
            if not kind.ours:
                database.make()
            server = start(kind, scheme, database, folder)
            stack.callback(server.stop)
            fill(server, token)
            server.idle = server.memory()
            servers.append(server)
        yield servers


def make_keys(folder: Folder) -> str:
    """Make the certificate of all servers and the key of the peers' token, and return that token."""
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(
        [*command.split(), "-keyout", str(folder.key), "-out", str(folder.certificate)], check=True, capture_output=True
    )
    key = load_pem_private_key(folder.key.read_bytes(), password=None)
    assert isinstance(key, RSAPrivateKey)
    folder.jwk.write_text(RSAAlgorithm.to_jwk(key.public_key()))
    now = int(time.time())
    claims = {"iss": "mylibrary", "sub": "bench@example.org", "roles": ["user"], "iat": now, "nbf": now}
    return jwt.encode(claims | {"exp": now + 86400, "jti": "1"}, key, "RS256")


if __name__ == "__main__":
    main()
