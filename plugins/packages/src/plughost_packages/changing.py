"""Change the environment: do what was planned with pip, let the running host take it up, undo what fails half-way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plughost import CommandError, Environment
from plughost_packages import pip
from plughost_packages.keeping import keeping
from plughost_packages.planning import Allowed, Change, Plan, refuse_not_allowed
from plughost_packages.repacking import repack

if TYPE_CHECKING:
    from plughost import InstalledDistribution, ReloadReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an operation did.

    Attributes:
        changes: What became of each distribution.
        undone: Whether all is as it was before, since the host could not serve with the change.
        reload: What the running host reported; None where none runs, or none was asked.
    """

    changes: tuple[Change, ...]
    undone: bool = False
    reload: ReloadReport | None = None

    @property
    def ok(self) -> bool:
        """Whether it is done, and the running host serves all of it."""
        return not self.undone and (self.reload is None or self.reload.ok)

    @property
    def word(self) -> str:
        """What the audit trail calls it: `ok`, `failed`, or `undone`."""
        return "undone" if self.undone else "ok" if self.ok else "failed"

    def as_plain(self) -> dict[str, Any]:
        """Return the outcome as JSON has it."""
        report = None if self.reload is None else self.reload.as_plain()
        return {"ok": self.ok, **asdict(replace(self, reload=None)), "reload": report}


def carry_out(
    plan: Plan,
    wheels: Path,
    tell: pip.Tell,
    *,
    take_up: Callable[[], ReloadReport | None],
    allowed: Allowed = lambda *_: None,
    keep: bool = False,
    afterwards: Callable[[], None] | None = None,
) -> Outcome:
    """Do what was planned; where it fails half-way, or the host can't serve with it, all is as it was before.

    Args:
        plan: The plan.
        wheels: The folder for wheels of what is replaced or removed.
        tell: Told each line that pip prints.
        take_up: Lets the running host take the change up, and returns its report; None where none runs.
        allowed: Tells what may be installed.
        keep: Leave the change even if the running host refuses it.
        afterwards: Called when the running host has taken the change up; if it raises, all is undone too.

    Raises:
        CommandError: It failed; nothing has changed.
    """
    with keeping({change.key for change in plan.changes}) as kept:
        installed = Environment().installed
        folders = {each for change in plan.changes if change.before for each in _named_folders(installed[change.key])}
        for change in plan.changes:
            if change.before is not None:
                tell(f"Keeping {change.distribution} {change.before}")
                repack(installed[change.key], wheels)
        for call in plan.calls if plan.changes else ():
            pip.run(call, tell)
        # Python read the `.pth` files at its start, and builders leave metadata beside the sources that they named.
        sys.path[:] = [each for each in sys.path if each not in folders]
        environment = Environment()
        _refuse_without_effect(plan, environment)
        refuse_not_allowed(plan.changes, environment, allowed)
        _forget_requests(plan.unasked, environment)
        tell("Reloading")
        report = take_up()
        if report is not None and report.problems and not keep:
            kept.put_back()
            return Outcome(changes=plan.changes, undone=True, reload=report)
        if afterwards is not None:
            try:
                afterwards()
            except BaseException:
                kept.put_back()
                take_up()
                raise
    return Outcome(changes=plan.changes, reload=report)


def _named_folders(distribution: InstalledDistribution) -> set[str]:
    """Return the folders that the `.pth` files of a distribution name, which is how builders install in place."""
    files = [Path(str(distribution.locate_file(each))) for each in distribution.files or () if each.suffix == ".pth"]
    texts = [file.read_text("utf-8", "surrogateescape") for file in files if file.is_file()]
    return {line for text in texts for line in text.splitlines()}


def _forget_requests(keys: Collection[str], environment: Environment) -> None:
    """Take back that somebody asked for distributions by name (PEP 376, REQUESTED), which pip notes of each pin."""
    for key in keys & environment.installed.keys():
        distribution = environment.installed[key]
        for file in [each for each in distribution.files or () if each.name == "REQUESTED"]:
            record = Path(str(distribution.locate_file(file.parent / "RECORD")))
            lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
            record.write_text("".join(line for line in lines if not line.startswith(f"{file},")), encoding="utf-8")
            Path(str(distribution.locate_file(file))).unlink(missing_ok=True)


def _refuse_without_effect(plan: Plan, environment: Environment) -> None:
    """Refuse what pip has called a success, and what is installed doesn't show.

    pip leaves alone what lies outside of its environment, and an older one on another folder of the path comes first.

    Raises:
        CommandError: A distribution is not what was planned.
    """
    for change in plan.changes:
        now = environment.versions.get(change.key)
        if now == change.after:
            continue
        wanted = f"{change.distribution} {change.after}" if change.after else f"{change.distribution} removed"
        found = "it is not installed"
        if now is not None:
            found = f"{now} is installed in {environment.installed[change.key].locate_file('')}"
        raise CommandError(f"pip reported success without effect: wanted was {wanted}, and {found}.")
