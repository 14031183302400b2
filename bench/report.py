"""Writes what was measured: tables for the terminal and for docs/performance.md, with a picture."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

from bench.load import LANES
from bench.measure import CALM, Measured
from bench.plot import bars
from bench.rows import GOALS, QUICK, ROWS
from bench.servers import ROOT, Kind, Server

PAGE: Final = ROOT / "docs" / "performance.md"
_TITLES: Final = {row.name: row.title for row in ROWS}
_OF_INTEREST: Final = ("falcon", "granian", "uvicorn", "gunicorn", "fastapi", "litestar", "flask", "django")


class Report:
    """Everything that a run measured."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        """Take the servers; the first that is plughost is what others are compared with."""
        self._kinds = kinds
        self._base = next((kind.name for kind in kinds if kind.ours), kinds[0].name)
        self._titles = {kind.name: kind.title for kind in kinds} | {CALM: "the same while nothing hangs"}
        self.results: list[Measured] = []
        self.started: dict[str, list[tuple[float, int, int]]] = {}
        self._load = os.getloadavg()[0]  # before the run, which is itself a load

    def record_start(self, servers: Iterable[Server]) -> None:
        """Take how long servers took to start and what memory they use, before they are stopped."""
        for server in servers:
            self.started.setdefault(server.kind.name, []).append((server.start, server.idle, server.memory()))

    def details(self, result: Measured) -> Iterator[str]:
        """Yield a table of one row on one lane."""
        yield f"\n### {_TITLES[result.row]}; {LANES[result.lane]}\n"
        yield "| server | requests/s | CPU µs each | p50 ms | p99 ms | plughost by rate | by CPU |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for name, title in self._titles.items():
            if name in result.refused:
                yield f"| {title} | refused: {result.refused[name]} | | | | | |"
            elif name in result.samples:
                rate, cpu, p50, p99 = (result.median(name, what) for what in ("rate", "cpu", "p50", "p99"))
                ratios = " | ".join(self._ratios(result, name)) or "|"
                yield f"| {title} | {rate:,.0f} | {cpu:,.0f} | {p50:.2f} | {p99:.2f} | {ratios} |"
        if result.fsyncs:
            yield f"\nThe disk makes {median(result.fsyncs):,.0f} fsyncs a second, one after the other."
        for name, samples in result.samples.items():
            if result.fsyncs and samples[0].creates_per_commit:
                creates = result.median(name, "creates_per_commit")
                yield f"{self._titles[name]}: {creates:.1f} creates with each fsync of its own."

    def summary(self) -> Iterator[str]:
        """Yield a table for each lane, of starts and memory, and of the ratios that are aimed at."""
        others = [kind for kind in self._kinds if kind.name != self._base]
        for lane, title in LANES.items():
            results = [each for each in self.results if each.lane == lane and self._base in each.samples]
            shown = [kind for kind in others if any(kind.name in {*each.samples, *each.refused} for each in results)]
            if results:
                yield f"\n### {title}\n"
                heads = "".join(f" {kind.name} |" for kind in shown)
                yield f"| row | requests/s | CPU µs | p50 ms | p99 ms | fsyncs/s |{heads}"
                yield "|---|---:|---:|---:|---:|---:|" + "---:|" * len(shown)
                for each in results:
                    yield self._line(each, shown)
        yield "\n### Start and memory\n"
        yield "| server | start to first 200, s | idle, MiB | after the load, MiB |\n|---|---:|---:|---:|"
        for kind in self._kinds:
            if kind.name in self.started:
                start, idle, loaded = (median(each) for each in zip(*self.started[kind.name], strict=True))
                yield f"| {kind.title} | {start:.2f} | {idle / 2**20:.0f} | {loaded / 2**20:.0f} |"
        yield "\n### What is aimed at\n"
        yield "| row | lane | against | by | ratio | at least | |\n|---|---|---|---|---:|---:|---|"
        yield from self._goals()

    def _line(self, result: Measured, shown: Sequence[Kind]) -> str:
        rate, cpu, p50, p99 = (result.median(self._base, what) for what in ("rate", "cpu", "p50", "p99"))
        cells = (
            "refused" if kind.name in result.refused else " / ".join(self._ratios(result, kind.name)) for kind in shown
        )
        fsyncs = f"{median(result.fsyncs):,.0f}" if result.fsyncs else ""
        ours = f"{rate:,.0f} | {cpu:,.0f} | {p50:.2f} | {p99:.2f} | {fsyncs}"
        return f"| {_TITLES[result.row]} | {ours} | {' | '.join(cells)} |"

    def _ratios(self, result: Measured, other: str) -> list[str]:
        if other == self._base or not {other, self._base} <= result.samples.keys():
            return []
        return [f"{result.ratio(self._base, other, by):.2f}" for by in ("rate", "cpu")]

    def _goals(self) -> Iterator[str]:
        for result in self.results:
            where = f"| {_TITLES[result.row]} | {LANES[result.lane]} |"
            if self._base in result.refused:
                yield f"{where} itself | failures | {result.refused[self._base]} | | **missed** |"
            elif self._base in result.samples:
                for what, ratio, at_least in (*self._against_others(result), *self._other_goals(result)):
                    yield _goal(f"{where} {what}", ratio, at_least)

    def _against_others(self, result: Measured) -> Iterator[tuple[str, float, float]]:
        """Yield the goals against other servers: server and measure, the ratio, and its minimum."""
        for goal in GOALS:
            if result.row in goal.rows and goal.against in result.samples:
                yield f"{goal.against} | {goal.by}", result.ratio(self._base, goal.against, goal.by), goal.at_least

    def _other_goals(self, result: Measured) -> Iterator[tuple[str, float, float]]:
        """Yield the goals that compare plughost with itself or the disk: what, the ratio, and its minimum."""
        rate, p50, p99 = (result.median(self._base, what) for what in ("rate", "p50", "p99"))
        if result.row == "get-64":
            yield "4 times its p50 | p99", 4 * p50 / p99, 1
        if result.row == "stored-create":
            yield "fsyncs of the disk | rate", rate / median(result.fsyncs), 1
            yield "fsyncs of its own | creates", result.median(self._base, "creates_per_commit"), 1
        if CALM in result.samples:
            yield "while nothing hangs | p50", result.median(CALM, "p50") / p50, 0.9
            yield "while nothing hangs | p99", result.median(CALM, "p99") / p99, 0.9
        if "access-log" in result.samples:
            yield "without its access log | rate", 1 / result.ratio(self._base, "access-log", "rate"), 0.85
        if "revision" in result.samples:
            yield "revision | cpu", result.ratio(self._base, "revision", "cpu"), 1

    def write(self, how: str) -> None:
        """Put the tables and the picture into docs/performance.md.

        Args:
            how: The command that measured them.
        """
        lines = [*_environment(how, self._load), *self.summary()]
        measured = "\n".join(["<!-- measured -->", "", *lines, "", "<!-- end -->"])
        text = PAGE.read_text(encoding="utf-8")
        text = re.sub(r"<!-- measured -->.*?<!-- end -->", lambda _: measured, text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")
        groups = {
            _TITLES[result.row]: {self._titles[name]: result.median(name, "rate") for name in result.samples}
            for result in self.results
            if result.lane == "http" and result.row in QUICK.split(",") and result.samples
        }
        picture = bars("Requests a second over HTTP/1.1, 32 clients", groups, self._titles[self._base])
        PAGE.with_name("performance.svg").write_text(picture, encoding="utf-8")


def _goal(what: str, ratio: float, at_least: float) -> str:
    return f"{what} | {ratio:.2f} | {at_least:.2f} | {'reached' if ratio >= at_least else '**missed**'} |"


def _environment(how: str, load: float) -> Iterator[str]:
    command = ["git", "rev-parse", "--short", "HEAD"]
    revision = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    versions = ", ".join(f"{name} {version(name)}" for name in _OF_INTEREST)
    yield f"- When: {datetime.now(UTC):%Y-%m-%d}, revision {revision.stdout.strip() or 'unknown'}."
    yield f"- Machine: {model[1] if model else platform.machine()}, {os.cpu_count()} cores, {platform.platform()}."
    yield f"- Load of the machine just before: {load:.1f} processes over a minute."
    yield f"- Python {platform.python_version()}, {versions}, Django REST framework {version('djangorestframework')},"
    yield f"  SQLAlchemy {version('sqlalchemy')}, psycopg2 {version('psycopg2-binary')}, msgspec {version('msgspec')}."
    yield f"- Measured with `{how}`."
