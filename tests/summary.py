"""Summarize the results that pytest left in each test environment: `summary.py FOLDER`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def read(report: Path) -> tuple[Counter[str], float, list[str]]:
    """Return the counts, the seconds and the reasons for skips of a JUnit report."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        return Counter(errors=1), 0.0, []
    counts = Counter({kind: int(suite.get(kind, 0)) for kind in ("failures", "errors", "skipped")})
    counts["passed"] = int(suite.get("tests", 0)) - counts.total()
    return counts, float(suite.get("time", 0)), [skip.get("message", "") for skip in suite.iter("skipped")]


def line(counts: Counter[str], seconds: float) -> str:
    """Return the counts in the form of pytest's last line."""
    errors = "error" if counts["errors"] == 1 else "errors"
    words = {"failures": "failed", "passed": "passed", "skipped": "skipped", "errors": errors}
    shown = [f"{counts[kind]} {word}" for kind, word in words.items() if counts[kind]]
    return f"{', '.join(shown) or 'no tests ran'} in {seconds:.2f}s"


def main(folder: Path) -> None:
    """Print a line for each environment, why tests were skipped, and the sum."""
    total: Counter[str] = Counter()
    total_seconds = 0.0
    reasons: Counter[str] = Counter()
    for report in sorted(folder.glob("*.xml")):
        counts, seconds, skips = read(report)
        print(f"{report.stem:<17} {line(counts, seconds)}")
        total += counts
        total_seconds += seconds
        reasons.update(skips)
    for reason, number in reasons.items():
        print(f"SKIPPED [{number}] {reason}")
    if total:
        print(f"===== {line(total, total_seconds)} =====")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
