"""What the commands that change the installation have in common: options, errors, and what they print."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.text import Text

from plughost._api.errors import CommandError
from plughost._cli.controlling import show_reload
from plughost._cli.options import EXIT_PROBLEMS, console, plain_table, print_json, text
from plughost._operations.changing import reload_running

if TYPE_CHECKING:
    from plughost._operations.changing import Outcome, Plan
    from plughost._operations.pip import Tell
    from plughost._settings.sources import Settings

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

# pip's own, passed on: what each is called, whether it takes a value, and the help.
_INDEX_OPTIONS = (
    ("--index-url", "-i", "Index to look in instead of PyPI."),
    ("--extra-index-url", None, "Further index; repeatable."),
    ("--find-links", "-f", "Folder or page with distributions; repeatable."),
    ("--trusted-host", None, "Host to reach without a valid certificate; repeatable."),
    ("--constraint", "-c", "File with constraints on versions; repeatable."),
)
_INDEX_FLAGS = (
    ("--no-index", "Look in no index, only where --find-links says."),
    ("--pre", "Take pre-releases too."),
)


def index_options(command: CommandT) -> CommandT:
    """Add the options that tell pip where to look; the command gets them as `where`, ready for pip."""
    names = [option.lstrip("-").replace("-", "_") for option, *_ in (*_INDEX_OPTIONS, *_INDEX_FLAGS)]

    @functools.wraps(command)
    def collected(*args: Any, **given: Any) -> Any:
        where: list[str] = []
        for name in names:
            value = given.pop(name)
            option = f"--{name.replace('_', '-')}"
            where += [option] if value is True else [part for each in value or () for part in (option, each)]
        return command(*args, where=where, **given)

    wrapped: Callable[..., Any] = collected
    for flag, told in reversed(_INDEX_FLAGS):
        wrapped = click.option(flag, is_flag=True, help=told)(wrapped)
    for option, short, told in reversed(_INDEX_OPTIONS):
        wrapped = click.option(option, *((short,) if short else ()), multiple=True, help=told)(wrapped)
    return wrapped  # type: ignore[return-value] # it takes pip's options in the place of `where`


def changing_options(command: CommandT) -> CommandT:
    """Add what every command has that changes what is served: `--dry-run`, `--no-reload` and `--keep`."""
    for option in (
        click.option("--keep", is_flag=True, help="Leave the change even if the running host refuses it."),
        click.option("--no-reload", is_flag=True, help="Don't let a running host take it up."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
    ):
        command = option(command)
    return command


def wheels_of(settings: Settings) -> Path:
    """Return the folder of wheels of what was replaced or removed, from which it can be installed again."""
    return settings.data_dir / "wheels"


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn what an operation raises into a message and exit code 1."""
    try:
        yield
    except CommandError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def working(quiet: bool) -> Iterator[Tell]:
    """Show on a terminal what is being done."""
    if quiet:
        yield lambda _: None
        return
    with console(stderr=True).status("Working out what to change") as status:
        yield lambda line: status.update(text(line[:100])) if line else None


def show_outcome(report: Mapping[str, Any] | None, *, undone: bool, what: str, data_dir_hint: bool = True) -> None:
    """Print what the running host made of a change."""
    out = console()
    if report is not None:
        show_reload(report, out)
        if report["restart_needed"]:
            out.print(text("Restart the host to take it up: plughost restart"))
    elif data_dir_hint:
        out.print(text("No host runs on the data folder; the next start takes it up."))
    if undone:
        console(stderr=True).print(Text(f"The running host refused the change: {what}", style="bold red"))


def taking_up(
    settings: Settings, no_reload: bool, accept: Collection[str] = ()
) -> Callable[[], Mapping[str, Any] | None]:
    """Return what lets the running host take a change up; it may block the plugins that are accepted to be."""
    return lambda: None if no_reload else reload_running(settings.data_dir, accept)


def show_plan(plan: Plan, quiet: bool, nothing: str) -> None:
    """Print what becomes of each distribution."""
    if quiet:
        return
    out = console()
    if not plan.changes:
        out.print(text(nothing))
        return
    table = plain_table("distribution", "from", "to", "")
    for change in plan.changes:
        table.add_row(
            text(change.distribution),
            text(change.before or "-"),
            text(change.after or "removed"),
            Text("the host runs on it: restart needed", style="yellow") if change.needs_restart else text(""),
        )
    out.print(table)


def finish(outcome: Outcome, as_json: bool, *, dry_run: bool = False) -> None:
    """Print what came of an operation; exit with code 1 where not all serves."""
    if as_json:
        print_json({**outcome.as_plain(), "dry_run": dry_run})
    elif dry_run:
        click.echo("Nothing was changed (--dry-run).")
    else:
        show_outcome(
            outcome.reload, undone=outcome.undone, what="all is as it was before. --keep would leave the change."
        )
    if not outcome.ok:
        raise SystemExit(EXIT_PROBLEMS)
