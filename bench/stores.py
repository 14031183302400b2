"""How much the store layer costs: catalog v3 against the same by hand with sqlite3, and with SQLAlchemy, in one run.

`python -m bench.stores`; README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.load import Load, Sample, Server, median, need_h2load, ratio

PATH: Final = "/api/v3/products"
APPS: Final = ("plughost", "raw_sqlite", "orm")


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        title: What it measures.
        products: How many there are.
        method: The method.
        path: The path.
        connections: How many clients ask at once.
    """

    title: str
    products: int
    method: str
    path: str
    connections: int = 16


ROWS: Final = (
    Row("get by SKU", 100, "GET", f"{PATH}/SKU-000000000050"),
    Row("list of 100", 100, "GET", PATH),
    Row("list of 10,000", 10_000, "GET", PATH, connections=1),
    Row("create", 100, "POST", PATH),
)


def compare(row: Row, load: Load) -> None:
    """Measure all apps on one row, and print its line."""
    plugins = ("--plugins", "catalog-v3,catalog-store")
    servers = {app: Server(app, *plugins, "--products", str(row.products)) for app in APPS}
    try:
        connections = ("--h1", f"-c{row.connections}", "-m1")
        samples = load.compare(servers, row.method, row.path, connections)
    finally:
        for server in servers.values():
            server.close()
    ours, raw, orm = (samples[app] for app in APPS)
    rates = " ".join(f"{median(each).rate:>9.1f}" for each in (ours, raw, orm))
    cpu = " ".join(f"{median(each).cpu:>9.0f}" for each in (ours, raw, orm))
    against = f"{_times(ours, raw)} {_times(ours, orm)}"
    print(f"{row.title:<16} {rates}  {cpu}  {against}", flush=True)


def _times(ours: Sequence[Sample], theirs: Sequence[Sample]) -> str:
    """Return how many times as long as theirs ours take, by the clock and by the CPU."""
    clock = ratio([each.rate for each in theirs], [each.rate for each in ours])
    cpu = ratio([each.cpu for each in ours], [each.cpu for each in theirs])
    return f"{clock:>7.2f} {cpu:>7.2f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="catalog v3 against sqlite3 by hand, and against SQLAlchemy")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; the median counts")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each measurement takes")
    parser.add_argument("--only", default="", help="only the rows whose title contains this")
    arguments = parser.parse_args()
    need_h2load()
    print(f"{'':<16} {'requests a second':^29}  {'CPU µs a request':^29}  {'against sqlite3':^15} {'SQLAlchemy':^15}")
    names = " ".join(f"{name:>9}" for name in ("plughost", "sqlite3", "SQLAlch."))
    print(f"{'':<16} {names}  {names}  {'clock':>7} {'CPU':>7} {'clock':>7} {'CPU':>7}")
    for row in ROWS:
        if arguments.only in row.title:
            compare(row, Load(arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    main()
