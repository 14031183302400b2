"""Change the environment: run a plan with pip, reload the running host, and undo a change that fails half-way."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plughost import CommandError, Environment, NotRunning
from plughost_packages import pip
from plughost_packages.keeping import keeping
from plughost_packages.ownership import refuse_overwriting
from plughost_packages.repacking import repack, wheels_of

if TYPE_CHECKING:
    from plughost import InstalledDistribution, PluginContext, ReloadReport
    from plughost_packages.planning import Change, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an operation did.

    Attributes:
        changes: The change of each distribution.
        undone: Whether the change was undone, since the host could not serve with it.
        reload: The report of the running host; None if none runs or no reload was wanted.
    """

    changes: tuple[Change, ...]
    undone: bool = False
    reload: ReloadReport | None = None

    @property
    def ok(self) -> bool:
        """Whether the change was made, and the running host serves all of it."""
        return not self.undone and (self.reload is None or self.reload.ok)

    def as_plain(self) -> dict[str, Any]:
        """Return the outcome as JSON types."""
        report = None if self.reload is None else self.reload.as_plain()
        return {"ok": self.ok, **asdict(replace(self, reload=None)), "reload": report}


def carry_out(
    context: PluginContext[Any],
    plan: Plan,
    tell: pip.Tell,
    *,
    accept: Collection[str] | None,
    keep: bool,
    afterwards: Callable[[], None] = lambda: None,
) -> Outcome:
    """Carry out a plan. If it fails half-way, or the host can't serve with it, undo everything.

    `accept` names plugins that the running host may block; None not to reload it. With `keep`, the change stays even
    if that host refuses it. `afterwards` is called after the reload; if it raises, everything is undone, too.

    Raises:
        CommandError: The plan failed; nothing has changed.
    """
    keys = {change.key for change in plan.changes}
    with _audited(context, plan) as events, keeping(keys) as (put_back, put_back_shared, settle):
        environment = Environment()
        _refuse_outdated(plan, environment)
        installed = environment.installed
        moved = sorted(refuse_overwriting(plan.wheels, installed))  # the plan's comparison is outdated by now
        folders = {each for change in plan.changes if change.before for each in _pth_folders(installed[change.key])}
        for change in plan.changes:
            if change.before is not None:
                tell(f"Saving {change.distribution} {change.before}")
                repack(installed[change.key], wheels_of(context))
        if moved:
            pip.run(["uninstall", "--yes", *moved], tell)
        for call in plan.calls:
            pip.run(call, tell)
        put_back_shared()
        # Python read the `.pth` files at its start, and the folders that they named may still contain metadata.
        sys.path[:] = [each for each in sys.path if each not in folders]
        environment = Environment()
        _refuse_without_effect(plan, environment)
        _unmark_requested(plan.unasked, environment)
        settle()
        tell("Reloading")
        try:
            report = _reload_despite_interruption(context, accept)
            if report is not None and report.problems and not keep:
                put_back()
                for event in events:
                    event["outcome"] = "undone"
                return Outcome(changes=plan.changes, undone=True, reload=report)
            afterwards()
        except BaseException:
            put_back()
            _reload(context, accept)  # an interrupted reload goes on in the host, and may have taken up the change
            raise
        return Outcome(changes=plan.changes, reload=report)


@contextmanager
def _audited(context: PluginContext[Any], plan: Plan) -> Iterator[list[dict[str, Any]]]:
    """Write an audit event for each kind of change in a plan when the block ends."""
    targets = defaultdict[str, list[str]](list)
    for each in plan.changes:
        targets[each.verb].append(f"{each.distribution} {each.after or each.before}")
    with ExitStack() as stack:
        yield [stack.enter_context(context.audited(verb, target=target)) for verb, target in targets.items()]


def _reload(context: PluginContext[Any], accept: Collection[str] | None) -> ReloadReport | None:
    """Reload the running host, if there is one."""
    try:
        return None if accept is None else context.control.reload(accept)
    except NotRunning:
        return None


def _reload_despite_interruption(context: PluginContext[Any], accept: Collection[str] | None) -> ReloadReport | None:
    """Reload as `_reload`. If that is interrupted, the host goes on, and may commit migrations: only it can tell."""
    try:
        return _reload(context, accept)
    except (KeyboardInterrupt, SystemExit):
        click.echo("Interrupted: waiting for the host, which reloads. Again, to undo at once.", err=True)
        return _reload(context, accept)


def _pth_folders(distribution: InstalledDistribution) -> set[str]:
    """Return the folders in a distribution's `.pth` files, which editable installs use."""
    files = [Path(str(distribution.locate_file(each))) for each in distribution.files or () if each.suffix == ".pth"]
    texts = [file.read_text("utf-8", "surrogateescape") for file in files if file.is_file()]
    return {line for text in texts for line in text.splitlines()}


def _unmark_requested(keys: Collection[str], environment: Environment) -> None:
    """Remove the REQUESTED mark (PEP 376) of dependencies: pip sets it for every pin."""
    for key in keys & environment.installed.keys():
        distribution = environment.installed[key]
        for file in [each for each in distribution.files or () if each.name == "REQUESTED"]:
            record = Path(str(distribution.locate_file(file.parent / "RECORD")))
            lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
            record.write_text("".join(line for line in lines if not line.startswith(f"{file},")), encoding="utf-8")
            Path(str(distribution.locate_file(file))).unlink(missing_ok=True)


def _refuse_outdated(plan: Plan, environment: Environment) -> None:
    """Refuse a plan if another command has changed its distributions since, as while this one asked a question."""
    for change in plan.changes:
        if environment.versions.get(change.key) != change.before:
            raise CommandError(f"Another command has changed {change.distribution} meanwhile; run this one again.")


def _refuse_without_effect(plan: Plan, environment: Environment) -> None:
    """Refuse an operation that pip reported as a success although the installed version is not the planned one.

    pip ignores distributions outside of its environment, and an older one may come first on the path.
    """
    for change in plan.changes:
        now = environment.versions.get(change.key)
        if now == change.after:
            continue
        wanted = f"{change.distribution} {change.after}" if change.after else f"{change.distribution} removed"
        found = "it is not installed"
        if now is not None:
            found = f"{now} is installed in {environment.installed[change.key].locate_file('')}"
        raise CommandError(f"pip reported success without effect: expected was {wanted}, but {found}.")
