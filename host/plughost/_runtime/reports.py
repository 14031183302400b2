"""What a reload says of itself."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from plughost._api.reload_report import ReloadReport
from plughost._plugins.registry import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plughost._plugins.registry import Entry, Registry


def report_of(
    generation: int,
    before: Registry,
    after: Registry,
    begun: float,
    *,
    cut_off: Iterable[str],
    restart_needed: Iterable[str],
) -> ReloadReport:
    """Return the report of a reload that swapped."""
    active = after.active()
    served = {entry.name for entry in before.active()}
    known = {entry.name for entry in after}
    return ReloadReport(
        swapped=True,
        generation=generation,
        added=tuple(entry.name for entry in active if entry.name not in served),
        changed=tuple(entry.name for entry in active if entry.name in served and not entry.reused),
        disabled=tuple(entry.name for entry in after if entry.name in served and entry.state is State.DISABLED),
        removed=tuple(sorted(served - known)),
        reused=tuple(entry.name for entry in active if entry.reused),
        failed=_reasons(after, State.FAILED),
        blocked=_reasons(after, State.BLOCKED),
        cut_off=tuple(cut_off),
        restart_needed=tuple(restart_needed),
        trouble=(*trouble_of(active), *trouble_of(before.active(), "stopping")),
        seconds=_seconds(after, begun),
    )


def report_of_nothing(
    generation: int,
    problems: Iterable[str],
    begun: float,
    *,
    refused: Iterable[Entry] = (),
    restart_needed: Iterable[str] = (),
) -> ReloadReport:
    """Return the report of a reload that left the running generation as it was."""
    return ReloadReport(
        swapped=False,
        generation=generation,
        problems=tuple(problems),
        failed=_reasons(refused, State.FAILED),
        blocked=_reasons(refused, State.BLOCKED),
        restart_needed=tuple(restart_needed),
        seconds=_seconds(refused, begun),
    )


def trouble_of(entries: Iterable[Entry], stage: str = "") -> tuple[tuple[str, str], ...]:
    """Return what went wrong with some plugins since they serve. Of one stage, where one is named."""
    return tuple(
        (entry.installed.label, str(failure))
        for entry in entries
        for failure in entry.trouble
        if stage in {"", failure.stage}
    )


def _reasons(entries: Iterable[Entry], state: State) -> tuple[tuple[str, str], ...]:
    return tuple((entry.installed.label, str(entry.failure)) for entry in entries if entry.state is state)


def _seconds(entries: Iterable[Entry], begun: float) -> dict[str, float]:
    spent = {
        entry.name: round(sum(entry.seconds.values()), 4)
        for entry in entries
        if entry.state is State.ACTIVE and not entry.reused
    }
    return {**spent, "total": round(monotonic() - begun, 4)}
