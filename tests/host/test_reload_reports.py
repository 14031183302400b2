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


def test_warnings_of_the_certificate_are_shown() -> None:
    """Each has a row of its own."""
    out, warnings = io.StringIO(), ("it expires in 9 days", "it lacks its issuer")
    report = ReloadReport(swapped=True, generation=2, certificate_warnings=warnings, seconds={"total": 0.0})
    Console(file=out).print(report)
    shown = [line.strip() for line in out.getvalue().splitlines()]
    assert shown[1:] == [f"certificate  {each}" for each in warnings]
