"""How the report of a reload is shown to people."""

from __future__ import annotations

import io

from rich.console import Console

from plughost._api.reload_report import ReloadReport


def test_a_long_report_breaks_lines_between_plugins_only() -> None:
    """A plugin's name and its seconds stay together, and no line is wider than the terminal."""
    names = tuple(f"acme-warehouse-inventory-{number:02}" for number in range(40))
    seconds = dict.fromkeys(names, 0.0) | {"total": 0.5}
    out = io.StringIO()
    Console(file=out, width=80).print(ReloadReport(swapped=True, generation=2, added=names, seconds=seconds))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count(f"{name} (0.00 s)") for line in lines for name in names) == len(names)
