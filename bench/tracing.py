"""What traces cost a request while none is sampled: one host, reloaded with and without them in turns.

Two processes that run the same differ by some hundredths, as their memory is laid out. So there is only one.
"""

from __future__ import annotations

import statistics
from typing import Final

from bench.load import LoadError, Target, burst
from bench.reloads import reload
from bench.rows import ROWS
from bench.servers import Kind, Server

HOST: Final = Kind("traces", "plughost", "granian", settings='[plugins.opentelemetry]\nendpoint = ""\nsample = 0\n')

_ENDPOINT: Final = "http://127.0.0.1:9/v1/traces"


def watch_traces(server: Server, turns: int, seconds: float, sample: float = 0.0) -> list[str]:
    """Return, as lines, what traces cost.

    Args:
        server: plughost, as `HOST`.
        turns: How often it is measured without traces, with them, and without them again.
        seconds: How long each time.
        sample: The part of the requests that is sampled.

    Raises:
        LoadError: A request failed.
    """
    costs, before, more, noise = [], [], [], []
    for _ in range(turns):
        first, between, last = (_measure(server, endpoint, sample, seconds) for endpoint in ("", _ENDPOINT, ""))
        without = (first + last) / 2
        before.append(without)
        costs.append(between - without)
        more.append(100 * (between / without - 1))
        noise.append(100 * (last / first - 1))
    return [
        f"without traces: {statistics.median(before):.1f} µs of CPU a request",
        f"more with traces: {statistics.median(costs):.1f} µs, {_spread(more)}",
        f"more without them again, which is noise: {_spread(noise)}",
    ]


def set_traces(server: Server, endpoint: str, sample: float = 0.0) -> None:
    """Let a host send traces to an endpoint, or to none."""
    values = {"endpoint": f'"{endpoint}"', "sample": str(sample)}

    def changed(setting: str) -> str:
        name = setting.split(" =", maxsplit=1)[0]
        return f"{name} = {values[name]}" if name in values else setting

    reload(server, changed)


def _measure(server: Server, endpoint: str, sample: float, seconds: float) -> float:
    """Return microseconds of CPU for each request of a burst, after one that warms up."""
    set_traces(server, endpoint, sample)
    for _ in range(2):
        cpu = server.cpu()
        told = burst(Target(url=server.url(ROWS[0].path)), "http", seconds)
        if told.failed:
            raise LoadError(told.why)
    return told.with_server_costs(server.cpu() - cpu, 0).cpu


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.1f} % (median of {len(values)} turns, half of them from {low:+.1f} to {high:+.1f} %)"
