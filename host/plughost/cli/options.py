"""What several commands share: options, reading the settings, and turning errors into messages and exit codes."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plughost.settings import Settings, SettingsError, read_settings

EXIT_PROBLEMS: Final = 1
"""The command did its work and found something wrong, or the host refused to start."""
EXIT_USAGE: Final = 2
"""The command line or the settings can't be used."""

_trailing = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

STATE_STYLES: Final = {"active": "green", "disabled": "dim", "failed": "bold red", "blocked": "yellow"}


def config_option(command: FunctionT) -> FunctionT:
    """Add `--config` to a command and hand it the settings that are read."""

    @click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Settings file; by default what PLUGHOST_CONFIG names, else ./plughost.toml.",
    )
    @functools.wraps(command)
    def reading(*args: Any, config: Path | None, **kwargs: Any) -> Any:
        return command(*args, settings=settings_of(config), **kwargs)

    return reading  # type: ignore[return-value] # the wrapper takes `config` where the command takes `settings`


def host_options(command: FunctionT) -> FunctionT:
    """Add what decides which plugins are built: `--dev`, `--without` and `--strict`."""
    for option in (
        click.option("--strict", is_flag=True, help="Refuse to start when any plugin fails."),
        click.option("--without", multiple=True, metavar="NAME", help="Skip this plugin; repeatable."),
        click.option("--dev", is_flag=True, help="Development mode: demo users, self-signed certificate, console."),
    ):
        command = option(command)
    return command


def json_option(command: FunctionT) -> FunctionT:
    """Add `--json` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")(command)


def settings_of(config: Path | None) -> Settings:
    """Read the settings; exit with code 2 and every problem named where they can't be used."""
    try:
        return read_settings(config)
    except SettingsError as error:
        for problem in error.problems:
            click.echo(f"Error: {problem}", err=True)
        raise SystemExit(EXIT_USAGE) from None


def print_json(value: Any) -> None:
    """Write a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def console(*, stderr: bool = False) -> Console:
    """Return the console to print tables on; where it is no terminal, lines are not cut."""
    stream = sys.stderr if stderr else sys.stdout
    file = cast("IO[str]", _Trimmed(stream))
    return Console(file=file, highlight=False, width=None if stream.isatty() else 200)


class _Trimmed:
    """A stream that leaves out the spaces at the end of a line, with which rich fills the last column."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._stream.write(_trailing.sub(r"\1", text))


def plain_table(*columns: str, whole: tuple[str, ...] = ()) -> Table:
    """Return a table in the house's looks: a header, no lines.

    Args:
        *columns: Their headings.
        whole: Those whose values are not broken over lines.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def text(value: object) -> Text:
    """Return a value as text that is never taken for markup."""
    return Text("" if value is None else str(value))
