"""What openapi, health, metrics and dev-console cost a request that is none of theirs, as a ratio in one run.

`python -m bench.extras`; README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
from typing import Final

from bench.load import Load, Sample, Server, error, mean, median, need_h2load

PATH: Final = "/api/v2/products/SKU-000000000050"
EXTRAS: Final = "openapi,health,metrics,dev-console"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="a small GET with and without the plugins around the services")
    parser.add_argument("--extras", default=EXTRAS, help="the plugins, separated by commas")
    parser.add_argument("--pairs", type=int, default=20, help="how many pairs of servers, one after the other")
    parser.add_argument("--rounds", type=int, default=2, help="how often each is measured; the median counts")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each measurement takes")
    arguments = parser.parse_args()
    need_h2load()
    print(f"{'':<10} {'requests a second':^33}  {'CPU µs a request':^33}")
    head = f"{'without':>9} {'with':>9} {'cost':>6} {'±':>6}"
    print(f"{'':<10} {head}  {head}")
    for engine in ("waitress", "granian"):
        options = ("--engine", engine, "--products", "100")
        both = {"without": options, "with": (*options, "--plugins", f"catalog-v2,{arguments.extras}")}
        found: dict[str, list[Sample]] = {name: [] for name in both}
        for _ in range(arguments.pairs):
            servers = {name: Server("plughost", *given) for name, given in both.items()}
            try:
                samples = Load(arguments.rounds, arguments.seconds).compare(servers, "GET", PATH)
            finally:
                for server in servers.values():
                    server.close()
            for name in both:
                found[name].append(median(samples[name]))
        one, other = mean(found["without"]), mean(found["with"])
        pairs = list(zip(found["without"], found["with"], strict=True))
        rates = f"{one.rate:>9.0f} {other.rate:>9.0f} {one.rate / other.rate - 1:>6.1%}"
        rates += f" {error([without.rate / with_.rate for without, with_ in pairs]):>6.1%}"
        cpu = f"{one.cpu:>9.1f} {other.cpu:>9.1f} {other.cpu / one.cpu - 1:>6.1%}"
        cpu += f" {error([with_.cpu / without.cpu for without, with_ in pairs]):>6.1%}"
        print(f"{engine:<10} {rates}  {cpu}", flush=True)


if __name__ == "__main__":
    main()
