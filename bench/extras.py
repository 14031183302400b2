"""What openapi, health, metrics and dev-console cost a request that is none of theirs, as a ratio in one run.

`python -m bench.extras`; README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
from typing import Final

from bench.load import Load, Server, median, need_h2load, ratio

PATH: Final = "/api/v2/products/SKU-000000000050"
EXTRAS: Final = "openapi,health,metrics,dev-console"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="a small GET with and without the plugins around the services")
    parser.add_argument("--extras", default=EXTRAS, help="the plugins, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is measured; the median counts")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each measurement takes")
    arguments = parser.parse_args()
    need_h2load()
    print(f"{'':<10} {'requests a second':^26}  {'CPU µs a request':^26}")
    head = f"{'without':>9} {'with':>9} {'cost':>6}"
    print(f"{'':<10} {head}  {head}")
    for engine in ("waitress", "granian"):
        options = ("--engine", engine, "--products", "100")
        servers = {
            "without": Server("plughost", *options),
            "with": Server("plughost", *options, "--plugins", f"catalog-v2,{arguments.extras}"),
        }
        try:
            samples = Load(arguments.rounds, arguments.seconds).compare(servers, "GET", PATH)
        finally:
            for server in servers.values():
                server.close()
        one, other = samples["without"], samples["with"]
        clock = ratio([each.rate for each in one], [each.rate for each in other]) - 1
        cpu = ratio([each.cpu for each in other], [each.cpu for each in one]) - 1
        rates = f"{median(one).rate:>9.0f} {median(other).rate:>9.0f} {clock:>6.1%}"
        print(f"{engine:<10} {rates}  {median(one).cpu:>9.1f} {median(other).cpu:>9.1f} {cpu:>6.1%}", flush=True)


if __name__ == "__main__":
    main()
