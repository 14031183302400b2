"""Helpers that the commands share: options, errors and output."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plughost import CommandError
from plughost_packages.pip import PipError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from plughost import PluginContext
    from plughost_packages.changing import Outcome
    from plughost_packages.pip import Tell
    from plughost_packages.planning import Plan

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_trailing_spaces: Final = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)

# pip's options that are passed on, with their help.
_INDEX_OPTIONS: Final[dict[tuple[str, ...], str]] = {
    ("--index-url", "-i"): "Package index to search; default: the one in the settings, if any.",
    ("--extra-index-url",): "Additional package index; repeatable.",
    ("--find-links", "-f"): "Folder or page with distributions to search; repeatable.",
    ("--trusted-host",): "Trust this host without a valid certificate; repeatable.",
    ("--constraint", "-c"): "Constraints file for versions; repeatable.",
    ("--no-index",): "Ignore package indexes, also the one in the settings.",
    ("--pre",): "Include pre-releases.",
}
_FLAGS: Final = ("--no-index", "--pre")


def index_options(command: CommandT) -> CommandT:
    """Add pip's options for indexes and folders. The command gets them as `where`, ready for pip."""

    @functools.wraps(command)
    def collected(*args: Any, **given: Any) -> Any:
        where: list[str] = []
        for option, *_ in _INDEX_OPTIONS:
            value = given.pop(option.removeprefix("--").replace("-", "_"))
            where += [option] if value is True else [part for each in value or () for part in (option, each)]
        return command(*args, where=where, **given)

    wrapped: Callable[..., Any] = collected
    for names, text in reversed(_INDEX_OPTIONS.items()):
        is_flag = names[0] in _FLAGS
        wrapped = click.option(*names, is_flag=is_flag, multiple=not is_flag, help=text)(wrapped)
    return wrapped  # type: ignore[return-value] # it takes pip's options instead of `where`


def changing_options(command: CommandT) -> CommandT:
    """Add the options of commands that change what is served: `--dry-run`, `--no-reload` and `--keep`."""
    for option in (
        click.option("--keep", is_flag=True, help="Keep the change even if the running host refuses it."),
        click.option("--no-reload", is_flag=True, help="Don't reload the running host."),
        click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@contextmanager
def refusals_audited(context: PluginContext[Any], given: Sequence[str]) -> Iterator[None]:
    """Write an audit event if the installation of some names is refused, or fails, before it has changed anything."""
    try:
        yield
    except CommandError as error:
        outcome = "failed" if isinstance(error, PipError) else "refused"
        context.audit("install", outcome, target=[_redacted(each) for each in given], reason=_redacted(str(error)))
        raise


def _redacted(text: str) -> str:
    """Remove users and passwords from the URLs of a text."""
    return re.sub(r"://[^/\s]*@", "://", text)


@contextmanager
def working(quiet: bool) -> Iterator[Tell]:
    """Show progress on a terminal. Yield a function that takes a line of it."""
    if quiet:
        yield lambda _: None
        return
    with Console(stderr=True).status("Resolving what to change") as status:
        yield lambda line: status.update(Text(line[:100])) if line else None


def show_plan(plan: Plan, quiet: bool, nothing: str) -> None:
    """Print the change of each distribution."""
    if quiet:
        return
    if not plan.changes:
        click.echo(nothing)
        return
    restart = Text("used by the host: restart needed", style="yellow")
    print_table(
        {
            "distribution": [change.distribution for change in plan.changes],
            "from": [change.before for change in plan.changes],
            "to": [change.after or "removed" for change in plan.changes],
            "": [restart if change.needs_restart else Text("") for change in plan.changes],
        }
    )
    for change in plan.changes:
        if change.after is not None:
            click.echo(f"{change.file or f'{change.distribution} {change.after}, built here'}\n  from {change.source}")
            click.echo(f"  sha256:{change.sha256}" if change.sha256 else "  without a hash")


def finish(outcome: Outcome, as_json: bool, *, dry_run: bool = False) -> None:
    """Print the outcome of an operation. Exit with code 1 if not everything serves."""
    if as_json:
        print_json({**outcome.as_plain(), "dry_run": dry_run})
    elif dry_run:
        click.echo("Nothing was changed (--dry-run).")
    else:
        _show_outcome(outcome)
    if not outcome.ok:
        raise SystemExit(1)


def _show_outcome(outcome: Outcome) -> None:
    if outcome.reload is None:
        click.echo("No running host was reloaded. The change takes effect at the next reload or start.")
    else:
        _print(outcome.reload)
        if outcome.reload.restart_needed:
            click.echo("Restart the host to apply the change: plughost restart")
    if outcome.undone:
        refusal = "The running host refused the change, so it was undone. To keep the change, use --keep."
        click.secho(refusal, err=True, fg="red", bold=True)


def print_json(value: Any) -> None:
    """Write a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def print_table(columns: Mapping[str, Sequence[str | Text | None]]) -> None:
    """Print a table without lines, given the values of each column by heading."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(value if isinstance(value, Text) else Text(value or "-") for value in row))
    _print(table)


def _print(renderable: RenderableType) -> None:
    """Print a renderable of rich without spaces at the ends of lines. If this is not a terminal, lines are not cut."""
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    with out.capture() as printed:
        out.print(renderable)
    click.echo(_trailing_spaces.sub(r"\1", printed.get()), nl=False)
