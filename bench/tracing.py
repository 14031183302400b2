"""What traces cost a request while none is sampled: CPU time of hosts with and without, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from bench.load import LoadError
from bench.measure import Measured
from bench.servers import Kind

WITHOUT: Final = Kind("without", "plughost without traces", "granian")
WITH: Final = Kind(
    "with",
    "plughost with traces, none of them sampled",
    "granian",
    settings='[plugins.opentelemetry]\nendpoint = "http://127.0.0.1:9/v1/traces"\nsample = 0\n',
)


def compare(measured: Sequence[Measured]) -> list[str]:
    """Return, as lines, what traces cost, of pairs of hosts that were started for it.

    Raises:
        LoadError: A request failed.
    """
    for each in measured:
        for name, why in each.refused.items():
            raise LoadError(f"{name}: {why}")
    shares = sorted(100 * (each.ratio(WITHOUT.name, WITH.name, "cpu") - 1) for each in measured)
    lines = [
        f"{kind.title}: {statistics.median(each.median(kind.name, 'cpu') for each in measured):.1f} µs of CPU a request"
        for kind in (WITHOUT, WITH)
    ]
    pairs = f"median of {len(shares)} pairs of hosts, from {shares[0]:+.1f} to {shares[-1]:+.1f} %"
    return [*lines, f"more with traces: {statistics.median(shares):.1f} % ({pairs})"]
