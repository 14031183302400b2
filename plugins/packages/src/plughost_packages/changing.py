"""Change the environment: plan, do it with pip, let the running host take it up, undo what fails half-way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from plughost import CommandError, Environment
from plughost_packages import pip
from plughost_packages.keeping import keeping
from plughost_packages.repacking import repack

if TYPE_CHECKING:
    from plughost import ReloadReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an operation does to one distribution.

    Attributes:
        distribution: Its name.
        before: The installed version; None where there is none.
        after: The version that will be installed; None where it is removed.
        source: Where the new version comes from, without credentials.
        needs_restart: Whether the host itself runs on it, so that a reload can't take it up.
    """

    distribution: str
    before: str | None
    after: str | None
    source: str = ""
    needs_restart: bool = False

    @property
    def key(self) -> str:
        """The normalised name."""
        return canonicalize_name(self.distribution)

    @property
    def verb(self) -> str:
        """What the audit trail calls it."""
        return "uninstall" if self.after is None else "install" if self.before is None else "upgrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an operation is about to do.

    Attributes:
        changes: What becomes of each distribution.
        arguments: What pip is called with to do it.
    """

    changes: tuple[Change, ...]
    arguments: tuple[str, ...]


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


def plan_install(requirements: Sequence[str], options: Sequence[str], wheels: Path, tell: pip.Tell) -> Plan:
    """Work out what an installation would change.

    Args:
        requirements: What pip is asked for.
        options: Further options of pip's.
        wheels: The folder of wheels of what was replaced or removed before; looked at where nothing else has it.
        tell: Told each line that pip prints.

    Raises:
        PipError: It can't be resolved.
    """
    arguments = ["install", *options, *requirements]
    try:
        items = pip.report(arguments[1:], tell)
    except pip.PipError as error:
        if not any(wheels.glob("*.whl")):
            raise
        arguments += ["--find-links", str(wheels)]
        try:
            items = pip.report(arguments[1:], tell)
        except pip.PipError:
            raise error from None
    environment = Environment()
    versions, shared = environment.versions, environment.shared
    changes = []
    for item in items:
        key = canonicalize_name(item["metadata"]["name"])
        changes.append(
            Change(
                distribution=item["metadata"]["name"],
                before=versions.get(key),
                after=item["metadata"]["version"],
                source=_without_credentials(item["download_info"]["url"]),
                needs_restart=key in shared and key in versions,
            )
        )
    return Plan(changes=tuple(sorted(changes, key=lambda change: change.key)), arguments=tuple(arguments))


def plan_uninstall(keys: Collection[str]) -> Plan:
    """Work out what an uninstallation changes.

    Args:
        keys: Normalised names of the distributions.
    """
    environment = Environment()
    changes = (
        Change(distribution=environment.name(key), before=environment.versions[key], after=None) for key in sorted(keys)
    )
    return Plan(changes=tuple(changes), arguments=("uninstall", "--yes", *sorted(keys)))


def carry_out(
    plan: Plan,
    wheels: Path,
    tell: pip.Tell,
    *,
    take_up: Callable[[], ReloadReport | None],
    keep: bool = False,
    afterwards: Callable[[], None] | None = None,
) -> Outcome:
    """Do what was planned; where it fails half-way, or the host can't serve with it, all is as it was before.

    Args:
        plan: The plan.
        wheels: The folder for wheels of what is replaced or removed.
        tell: Told each line that pip prints.
        take_up: Lets the running host take the change up, and returns its report; None where none runs.
        keep: Leave the change even if the running host refuses it.
        afterwards: Called when the running host has taken the change up; if it raises, all is undone too.

    Raises:
        CommandError: It failed; nothing has changed.
    """
    with keeping({change.key for change in plan.changes}) as kept:
        installed = Environment().installed
        for change in plan.changes:
            if change.before is not None:
                tell(f"Keeping {change.distribution} {change.before}")
                repack(installed[change.key], wheels)
        if plan.changes:
            _run(plan, tell)
            _refuse_without_effect(plan)
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


def _run(plan: Plan, tell: pip.Tell) -> None:
    """Call pip, bound to the versions that were planned."""
    if plan.arguments[0] != "install" or "--require-hashes" in plan.arguments:
        pip.run(plan.arguments, tell)
        return
    with tempfile.TemporaryDirectory(prefix="plughost-") as folder:
        file = Path(folder, "planned.txt")
        file.write_text("".join(f"{each.distribution}=={each.after}\n" for each in plan.changes), encoding="utf-8")
        pip.run([*plan.arguments, "--constraint", str(file)], tell)


def _refuse_without_effect(plan: Plan) -> None:
    """Refuse what pip has called a success, and what is installed doesn't show.

    pip leaves alone what lies outside of its environment, and an older one on another folder of the path comes first.

    Raises:
        CommandError: A distribution is not what was planned.
    """
    environment = Environment()
    for change in plan.changes:
        now = environment.versions.get(change.key)
        if now == change.after:
            continue
        wanted = f"{change.distribution} {change.after}" if change.after else f"{change.distribution} removed"
        found = "it is not installed"
        if now is not None:
            found = f"{now} is installed in {environment.installed[change.key].locate_file('')}"
        raise CommandError(f"pip reported success without effect: wanted was {wanted}, and {found}.")


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
