"""How much the host costs: catalog v2 against a hand-written Falcon app on the same engines, as ratios in one run.

`python -m bench.catalog`; README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.load import KEEP_ALIVE, MULTIPLEXED, Load, Sample, Server, median, need_h2load, ratio

PATH: Final = "/api/v2/products"


@dataclass(frozen=True)
class Way:
    """A way to reach a server.

    Attributes:
        title: What the table calls it.
        ours: The engine that serves plughost.
        bare: The engine that serves the bare app.
        scheme: `http` or `https`.
        connections: How h2load connects.
        access_log: Whether plughost writes its access log; the bare app has none.
    """

    title: str
    ours: str
    bare: str
    scheme: str
    connections: tuple[str, ...]
    access_log: bool = False


WAYS: Final = (
    Way("waitress, HTTP/1.1", "waitress", "waitress", "http", KEEP_ALIVE),
    Way("granian, HTTP/1.1", "granian", "granian", "http", KEEP_ALIVE),
    Way("granian, HTTPS, HTTP/2", "granian", "granian", "https", MULTIPLEXED),
    Way("waitress as it comes", "waitress", "waitress-as-it-comes", "http", KEEP_ALIVE),
    Way("waitress, access log", "waitress", "waitress", "http", KEEP_ALIVE, access_log=True),
)


def compare(way: Way, load: Load) -> None:
    """Measure both apps on one way, and print a line for each method."""
    log = ("--access-log",) if way.access_log else ()
    servers = {
        "plughost": Server("plughost", "--engine", way.ours, "--products", "100", *log, scheme=way.scheme),
        "bare": Server("bare", "--engine", way.bare, "--products", "100", scheme=way.scheme),
    }
    try:
        for method, what in (("GET", "list of 100"), ("POST", "create")):
            samples = load.compare(servers, method, PATH, way.connections)
            print(f"{way.title:<24} {method:<4} {what:<12}", _columns(samples["plughost"], samples["bare"]), flush=True)
    finally:
        for server in servers.values():
            server.close()


def _columns(ours: Sequence[Sample], bare: Sequence[Sample]) -> str:
    rate = ratio([each.rate for each in ours], [each.rate for each in bare])
    cpu = ratio([each.cpu for each in bare], [each.cpu for each in ours])
    our, other = median(ours), median(bare)
    return f"{our.rate:>8.0f} {other.rate:>8.0f} {rate:>7.2f} {our.cpu:>8.0f} {other.cpu:>8.0f} {cpu:>7.2f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="catalog v2 against a hand-written Falcon app on the same engines")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; the median counts")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each measurement takes")
    parser.add_argument("--only", default="", help="only the ways whose title contains this")
    arguments = parser.parse_args()
    need_h2load()
    print(f"{'':<42} {'requests a second':^25} {'CPU µs a request':^25}")
    print(f"{'':<42} {'plughost':>8} {'bare':>8} {'ratio':>7} {'plughost':>8} {'bare':>8} {'ratio':>7}")
    for way in WAYS:
        if arguments.only in way.title:
            compare(way, Load(arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    main()
