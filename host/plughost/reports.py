"""What a reload says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from plughost.roster import Origin, State

if TYPE_CHECKING:
    from plughost.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What came of a reload.

    Attributes:
        swapped: Whether another generation serves now; where not, nothing has changed.
        generation: The number of the generation that serves now.
        added: Plugins that serve now and did not before.
        removed: Plugins that served before and do not now.
        changed: Plugins that were imported or asked for their declarations anew.
        unchanged: Plugins carried over with their memory.
        failed: Plugins that do not serve, with the reason.
        problems: Why nothing changed.
        restart_needed: What takes effect only when the host is restarted, and why.
        seconds: How long it took, by plugin for those that were loaded, and in all under `total`.
    """

    swapped: bool
    generation: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()
    seconds: dict[str, float]

    @property
    def ok(self) -> bool:
        """Whether all that is installed and enabled now serves."""
        return self.swapped and not self.failed and not self.restart_needed

    def as_plain(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {"ok": self.ok, **asdict(self)}


def report_of(
    generation: int, before: Roster, after: Roster, begun: float, restart_needed: Iterable[str]
) -> ReloadReport:
    """Return the report of a reload that swapped."""
    active = after.active()
    served = {entry.name for entry in before.active()}
    return ReloadReport(
        swapped=True,
        generation=generation,
        added=tuple(entry.name for entry in active if entry.name not in served),
        removed=tuple(sorted(served - {entry.name for entry in active})),
        changed=tuple(e.name for e in active if e.name in served and e.origin is not Origin.UNCHANGED),
        unchanged=tuple(entry.name for entry in active if entry.carried),
        failed=_failures(after),
        restart_needed=tuple(restart_needed),
        seconds=_seconds(after, begun),
    )


def report_of_nothing(
    generation: int,
    problems: Iterable[str],
    begun: float,
    *,
    failed: Roster | None = None,
    restart_needed: Iterable[str] = (),
) -> ReloadReport:
    """Return the report of a reload that left the running generation as it was."""
    return ReloadReport(
        swapped=False,
        generation=generation,
        problems=tuple(problems),
        failed=_failures(failed) if failed is not None else (),
        restart_needed=tuple(restart_needed),
        seconds=_seconds(failed, begun),
    )


def _failures(roster: Roster) -> tuple[tuple[str, str], ...]:
    return tuple((entry.found.label, str(entry.failure)) for entry in roster if entry.failure is not None)


def _seconds(roster: Roster | None, begun: float) -> dict[str, float]:
    loaded = () if roster is None else roster.entries
    spent = {
        entry.name: round(sum(entry.seconds.values()), 4)
        for entry in loaded
        if entry.state is State.ACTIVE and not entry.carried
    }
    return {**spent, "total": round(monotonic() - begun, 4)}
