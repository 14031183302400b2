"""Helpers that commands share: options, settings and output."""

from __future__ import annotations

import gc
import json
import os
import re
import stat
import sys
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import compress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plughost._cli.ending import limit_exit
from plughost._files import remove_empty
from plughost._settings.errors import SettingsError
from plughost._settings.models import HostSettings
from plughost._settings.sources import DEFAULT_FILE, ENV_PREFIX, Settings, default_settings, read_settings

if TYPE_CHECKING:
    from plughost._runtime.generation import Generation

EXIT_PROBLEMS: Final = 1
"""The command did its work and found something wrong, or the host refused to start."""
EXIT_USAGE: Final = 2
"""The command line or the settings can't be used."""

_NO_LIMIT: Final = 1000

_NO_FOLLOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_WIDE: Final = 110
_PRIORITIES: Final = {"Error:": 3, "Warning:": 4}  # of the journal (sd-daemon(3))
_STATE_STYLES: Final = {"active": "green", "disabled": "dim", "failed": "bold red", "blocked": "yellow"}
_trailing_spaces = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
CommandT = TypeVar("CommandT", bound=Callable[..., Any] | click.Command)

strict_option: Final = partial(click.option, "--strict", is_flag=True, help="Refuse to start if any plugin fails.")
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def with_full_help(command: click.Command) -> click.Command:
    """Make a group's help show the whole first sentence of a command, which click would cut off."""
    if not command.deprecated:  # click would add the word "deprecated" twice
        command.short_help = command.get_short_help_str(_NO_LIMIT)
    return command


class Group(click.Group):
    """A group whose help shows the whole first sentence of each command."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(with_full_help(cmd), name)


def host_options(command: CommandT) -> CommandT:
    """Add the options that select plugins: `--dev` and `--without`."""
    without = click.option("--without", multiple=True, metavar="NAME", help="Skip this plugin; repeatable.")
    dev = click.option("--dev", is_flag=True, help="Development mode: demo users, self-signed certificate, console.")
    return dev(without(command))


def config_file_option(
    read: Callable[[Path | None], object], argument: str | None = None
) -> Callable[[CommandT], CommandT]:
    """Return the option `--config`: it calls `read` with the settings file that the command or its group was given.

    If an argument of the command is named, it is what `read` returned.
    """

    def remember_and_read(ctx: click.Context, _: click.Parameter, config: Path | None) -> object:
        if config is not None:
            ctx.meta[__name__] = config
        return None if ctx.resilient_parsing else read(config_file(ctx))

    return click.option(
        "--config",
        argument or "config",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=remember_and_read,
        expose_value=argument is not None,
        help="Settings file [default: $PLUGHOST_CONFIG or ./plughost.toml]",
    )


def config_file(ctx: click.Context) -> Path | None:
    """Return the settings file that was given to the command or to its group, if any."""
    file: Path | None = ctx.meta.get(__name__)
    return file


def load_settings(config: Path | None) -> Settings:
    """Read the settings. If they are invalid, print every problem and exit with code 2.

    When the command ends, all that root left in the data folder is given to that folder's owner.
    """
    try:
        settings = read_settings(config)
    except SettingsError as error:
        for problem in error.problems:
            say(f"Error: {problem}", err=True)
        raise SystemExit(EXIT_USAGE) from None
    click.get_current_context().find_root().call_on_close(partial(_chown_to_owner, settings.data_dir))
    return settings


def _load_data_dir(config: Path | None) -> Path:
    try:
        return read_settings(config).data_dir
    except SettingsError as error:
        for problem in error.problems:
            say(f"Warning: {problem}", err=True)
        return _find_data_dir(config)


def _find_data_dir(config: Path | None) -> Path:
    """Return the data folder of settings that are otherwise invalid.

    It is the value of `PLUGHOST_DATA_DIR`, else of the line `data_dir = ...` above the first table, else the default.
    """
    file = config or Path(os.environ.get("PLUGHOST_CONFIG") or DEFAULT_FILE)
    data_dir = HostSettings.model_fields["data_dir"].default
    text = ""
    with suppress(OSError):  # no file, or no permission to read it
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    top = re.split(r"(?m)^\s*\[", text)[0]
    if line := re.search(r"(?m)^[ \t]*data_dir[ \t]*=.*", top):
        with suppress(ValueError, TypeError, RecursionError):  # see `_parse_toml` of the settings
            data_dir = Path(tomllib.loads(line[0])["data_dir"])
    data_dir = Path(os.environ.get(f"{ENV_PREFIX}DATA_DIR") or data_dir)
    return (file.absolute().parent / data_dir.expanduser()).absolute()


config_option: Final = config_file_option(load_settings, "settings")
"""The option `--config`, which passes `settings`."""
data_dir_option: Final = config_file_option(_load_data_dir, "data_dir")
"""The option `--config`, which passes `data_dir`, even if other settings are invalid."""
group_config_option: Final = config_file_option(lambda _: None)
"""The option `--config` of a group, for all of its commands."""


def settings_or_defaults(config: Path | None = None) -> Settings:
    """Read the settings, or return the defaults if they are invalid: help and completion can't show an error."""
    try:
        return read_settings(config)
    except SettingsError:
        return default_settings()


def preview_generation(
    settings: Settings, without: Collection[str] = (), *, dev: bool = False, rehearsed: bool = False
) -> Generation:
    """Build and close the generation that a host would serve if it started now, even if plugins fail.

    Where no host has started before, the folders that plugins ask for are removed again. Otherwise root's
    `plughost check` would make them, and the host's user couldn't write there.
    """
    limit_exit(settings.host.hook_timeout, partial(say, err=True))
    is_first = not settings.data_dir.exists()
    gc.disable()  # all that is built here lives as long as the command, so a collection would find nothing
    try:
        from plughost._logging import silent_logger  # noqa: PLC0415 - commands to a running host need none of it
        from plughost._runtime.host import Host  # noqa: PLC0415 - as above

        host = Host(settings, dev=dev, without=without, logger=silent_logger())
        generation = host.dry_run(rehearsed=rehearsed)
        generation.close()
    finally:
        if is_first:
            remove_empty(settings.data_dir)
        gc.freeze()  # nor at the end of the command
        gc.enable()
    return generation


def _chown_to_owner(folder: Path) -> None:
    """Give root's files in a data folder to the folder's owner, so that a host of that user can use them.

    The owner can write there and must not gain other files: links, and files with a second name, are left alone.
    """
    if os.geteuid() != 0 or not folder.is_dir():
        return
    owner = folder.stat()
    if owner.st_uid == 0:
        return
    for _, folders, files, descriptor in os.fwalk(folder):
        for name in (*folders, *files):
            with suppress(OSError):  # a link or a socket, or already gone
                _chown_safely(os.open(name, _NO_FOLLOW, dir_fd=descriptor), owner)


def _chown_safely(descriptor: int, owner: os.stat_result) -> None:
    try:
        status = os.fstat(descriptor)
        is_safe = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
        if status.st_uid == 0 and is_safe:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


def print_json(value: Any) -> None:
    """Write a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def console(*, stderr: bool = False) -> Console:
    """Return a console for tables, without markup. If it is not a terminal, lines are not cut."""
    stream = sys.stderr if stderr else sys.stdout
    file = cast("IO[str]", _TrimmedStream(stream))
    width = None if stream.isatty() else 200
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width)


def say(message: str, *, err: bool = False) -> None:
    """Print sentences. On a terminal, wrap lines at words, except lines with a long word such as a path.

    Where standard error leads to systemd's journal, errors and warnings begin with their priority.
    """
    if (sys.stderr if err else sys.stdout).isatty():
        width = console(stderr=err).width
        message = "\n".join(_wrapped(line, width) for line in message.splitlines())
    priority = _PRIORITIES.get(message.partition(" ")[0])
    if err and priority is not None and "JOURNAL_STREAM" in os.environ:
        from plughost._logging import is_journal, with_priority  # noqa: PLC0415 - few commands run under systemd

        message = with_priority(priority, message) if is_journal(sys.stderr) else message
    click.echo(message, err=err)


def _wrapped(line: str, width: int) -> str:
    if max(map(len, line.split()), default=0) > width // 2:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)


class _TrimmedStream:
    """A stream that drops spaces at the ends of lines, with which rich pads the last column."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._stream.write(_trailing_spaces.sub(r"\1", text))


def spinner(what: str) -> AbstractContextManager[object]:
    """Show a spinner on a terminal while the block runs."""
    return console(stderr=True).status(f"{what} ...") if sys.stderr.isatty() else nullcontext()


def plain_table(*columns: str) -> Table:
    """Return a table without lines, and with a header if its columns have names."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(columns), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_rows(
    out: Console, names: Sequence[str], rows: Iterable[Sequence[str | Text]], *, wide: Collection[str], omitted: str
) -> None:
    """Print a table with a header. A narrow terminal gets it without the columns `wide`, and a line that says so.

    Only these columns are wrapped. If the others don't fit, they are folded: rich would cut them off.
    """
    shown = [is_wide(out) or name not in wide for name in names]
    table = plain_table(*compress(names, shown))
    for row in rows:
        table.add_row(*compress(row, shown))
    unwrapped = [column for column in table.columns if column.header not in wide]
    needed = sum(2 + max(len(str(cell)) for cell in (column.header, *column.cells)) for column in unwrapped)
    for column in unwrapped:
        column.no_wrap = needed <= out.width
    out.print(table)
    if not all(shown):
        out.print(Text(f"Not shown for lack of space: {omitted}. Use a wider terminal, or --json.", style="dim"))


def plugins_table(rows: Iterable[tuple[str, str, str, str]]) -> Table:
    """Return a table of plugins: name, version, state, and the prefixes or the reason of a failure."""
    table = plain_table()
    for name, version, state, detail in rows:
        table.add_row(f"  {name}", version, state_text(state), detail)
    return table


def is_wide(out: Console) -> bool:
    """Return whether a terminal has room for all columns of a table."""
    return out.width >= _WIDE


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 plugin`, `2 plugins`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_days_left(days: int) -> str:
    """Return how long a certificate is still valid."""
    return f"{pluralize(days, 'day')} left" if days >= 0 else "expired"


def format_duration(seconds: float) -> str:
    """Format a duration for people, in its two largest units: `3 h 25 min`, `12 s`."""
    left = round(seconds)
    parts = []
    for unit, size in [each for each in _UNITS if each[1] <= left][:2]:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"


def state_text(state: str) -> Text:
    """Return a plugin's state in its colour."""
    return Text(state, style=_STATE_STYLES[state])
