"""What several commands share: options, reading the settings, and turning errors into messages and exit codes."""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import stat
import sys
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plughost._settings.errors import SettingsError
from plughost._settings.models import HostSettings
from plughost._settings.sources import DEFAULT_FILE, Settings, no_settings, read_settings
from plughost._settings.variables import ENV_PREFIX

if TYPE_CHECKING:
    from plughost._runtime.generation import Generation

EXIT_PROBLEMS: Final = 1
"""The command did its work and found something wrong, or the host refused to start."""
EXIT_USAGE: Final = 2
"""The command line or the settings can't be used."""

_ANY_LENGTH: Final = 1000

_FOLLOWING_NOTHING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_WIDE: Final = 110
_STATE_STYLES: Final = {"active": "green", "disabled": "dim", "failed": "bold red", "blocked": "yellow"}
_trailing = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

config_file_option: Final = partial(
    click.option,
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file; by default what PLUGHOST_CONFIG names, else ./plughost.toml.",
)
strict_option: Final = click.option("--strict", is_flag=True, help="Refuse to start when any plugin fails.")
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")


def with_whole_help(command: click.Command) -> click.Command:
    """Return a command of which a group's help says the whole first sentence, which click cuts off at the row's end."""
    if not command.deprecated:  # which click adds by itself, once more
        command.short_help = command.get_short_help_str(_ANY_LENGTH)
    return command


class Group(click.Group):
    """A group whose help says the whole first sentence of each command."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command."""
        super().add_command(with_whole_help(cmd), name)


def config_option(command: FunctionT) -> FunctionT:
    """Add `--config` to a command and hand it `settings`."""
    return _reading(command, "settings", settings_of)


def data_dir_option(command: FunctionT) -> FunctionT:
    """Add `--config` to a command and hand it `data_dir`, even while other settings are wrong."""
    return _reading(command, "data_dir", _data_dir_of)


def group_config_option(group: FunctionT) -> FunctionT:
    """Add `--config` to a group, for whichever of its commands is called."""
    return config_file_option(expose_value=False, is_eager=True, callback=_remember)(group)


def config_of_group(ctx: click.Context | None = None) -> Path | None:
    """Return the settings file that was named before the command, if any."""
    file: Path | None = (ctx or click.get_current_context()).meta.get(__name__)
    return file


def _remember(ctx: click.Context, _: click.Parameter, config: Path | None) -> None:
    if config is not None:
        ctx.meta[__name__] = config


def _reading(command: FunctionT, argument: str, read: Callable[[Path | None], object]) -> FunctionT:
    @config_file_option()
    @functools.wraps(command)
    def reading(*args: Any, config: Path | None, **kwargs: Any) -> Any:
        return command(*args, **{argument: read(config or config_of_group())}, **kwargs)

    return reading  # type: ignore[return-value] # the wrapper takes `config` where the command takes what is read


def host_options(command: FunctionT) -> FunctionT:
    """Add what decides which plugins are built: `--dev` and `--without`."""
    without = click.option("--without", multiple=True, metavar="NAME", help="Skip this plugin; repeatable.")
    dev = click.option("--dev", is_flag=True, help="Development mode: demo users, self-signed certificate, console.")
    return dev(without(command))


def settings_of(config: Path | None) -> Settings:
    """Read the settings. Exit with code 2 and every problem named where they can't be used.

    When the command ends, what it has left in the data folder belongs to that folder's owner, also if root ran it.
    """
    try:
        settings = read_settings(config)
    except SettingsError as error:
        for problem in error.problems:
            say(f"Error: {problem}", err=True)
        raise SystemExit(EXIT_USAGE) from None
    click.get_current_context().find_root().call_on_close(partial(_give_to_owner, settings.data_dir))
    return settings


def settings_or_defaults(config: Path | None = None) -> Settings:
    """Read the settings for help and completion, which can show no error: the defaults where they can't be used."""
    try:
        return read_settings(config)
    except SettingsError:
        return no_settings()


def look(
    settings: Settings,
    without: Collection[str] = (),
    *,
    dev: bool = False,
    strict: bool = False,
    rehearsed: bool = False,
) -> Generation:
    """Return what a host that starts now would serve, for looking at: nothing is open, whatever fails."""
    gc.disable()  # what is imported and built here lives as long as the command: no search finds garbage in it
    try:
        from plughost._logging import silent_logger  # noqa: PLC0415 - a command that asks a running host needs no host
        from plughost._runtime.host import Host  # noqa: PLC0415 - as above

        host = Host(settings, dev=dev, without=without, strict=strict, logger=silent_logger())
        generation = host.dry_run(rehearsed=rehearsed)
        generation.close()
    finally:
        gc.freeze()  # nor when the command ends
        gc.enable()
    return generation


def _data_dir_of(config: Path | None) -> Path:
    try:
        return read_settings(config).data_dir
    except SettingsError as error:
        for problem in error.problems:
            say(f"Warning: {problem}", err=True)
        return _stated_data_dir(config)


def _stated_data_dir(config: Path | None) -> Path:
    """Return the data folder that settings name, though something else in them is wrong.

    It is what `PLUGHOST_DATA_DIR` names, else the line `data_dir = ...` above the first table, else the default.
    """
    file = config or Path(os.environ.get("PLUGHOST_CONFIG") or DEFAULT_FILE)
    stated = HostSettings.model_fields["data_dir"].default
    lines: list[str] = []
    with suppress(OSError):  # there is none, or another user's
        lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for line in takewhile(lambda line: not line.lstrip().startswith("["), lines):
        if re.match(r"\s*data_dir\s*=", line):
            with suppress(tomllib.TOMLDecodeError, TypeError):
                stated = Path(tomllib.loads(line)["data_dir"])
    stated = Path(os.environ.get(f"{ENV_PREFIX}DATA_DIR") or stated)
    return (file.absolute().parent / stated.expanduser()).absolute()


def _give_to_owner(folder: Path) -> None:
    """Give what is root's in a data folder to the folder's owner, so that a host of that user can use it.

    The owner may write there and must not get anything else by it: links, and files that have another name, too, are
    left as they are.
    """
    if os.geteuid() != 0 or not folder.is_dir():
        return
    owner = folder.stat()
    if owner.st_uid == 0:
        return
    for _, folders, files, above in os.fwalk(folder):
        for name in (*folders, *files):
            with suppress(OSError):  # it is a link or a socket, or gone by now
                _give(os.open(name, _FOLLOWING_NOTHING, dir_fd=above), owner)


def _give(descriptor: int, owner: os.stat_result) -> None:
    try:
        found = os.fstat(descriptor)
        alone = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
        if found.st_uid == 0 and alone:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


def print_json(value: Any) -> None:
    """Write a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def console(*, stderr: bool = False) -> Console:
    """Return the console for tables. It takes no text for markup; where it is no terminal, lines are not cut."""
    stream = sys.stderr if stderr else sys.stdout
    file = cast("IO[str]", _Trimmed(stream))
    width = None if stream.isatty() else 200
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width)


def say(message: str, *, err: bool = False) -> None:
    """Write sentences, on a terminal wrapped at words. A line with a long word, such as a path, stays whole."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = console(stderr=err).width
        message = "\n".join(_wrapped(line, width) for line in message.splitlines())
    click.echo(message, err=err)


def _wrapped(line: str, width: int) -> str:
    if max(map(len, line.split()), default=0) > width // 2:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)


class _Trimmed:
    """A stream that leaves out the spaces at the end of a line, with which rich fills the last column."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._stream.write(_trailing.sub(r"\1", text))


@contextmanager
def readable(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors whose message says what to do into that message and exit code 1."""
    try:
        yield
    except kinds as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal, for as long as the block runs, that something is being done."""
    with console(stderr=True).status(f"{what} ...") if sys.stderr.isatty() else nullcontext():
        yield


def plain_table(*columns: str, whole: tuple[str, ...] = ()) -> Table:
    """Return a table in the house's looks: no lines, and a header where its columns have names."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(columns), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    return table


def print_table(out: Console, table: Table) -> None:
    """Print a table. Where what is to stay whole has no room, it is folded: rich would cut it off."""
    whole = [column for column in table.columns if column.no_wrap]
    needed = sum(2 + max(len(str(cell)) for cell in (column.header, *column.cells)) for column in whole)
    for column in whole if needed > out.width else ():
        column.no_wrap = False
    out.print(table)


def plugins_table(rows: Iterable[tuple[str, str, str, str]]) -> Table:
    """Return a table of plugins: name, version, state, and where each is mounted or why it is not."""
    table = plain_table()
    for name, version, state, told in rows:
        table.add_row(f"  {name}", version, state_text(state), told)
    return table


def is_wide(out: Console) -> bool:
    """Return whether a terminal has the columns that the last column of a table needs to be readable."""
    return out.width >= _WIDE


def say_left_out(out: Console, what: str, *, wide: bool) -> None:
    """Say that a narrow terminal shows less."""
    if not wide:
        out.print(Text(f"Left out for want of room: {what}; a wider terminal shows them, or --json.", style="dim"))


def counted(number: int, one: str) -> str:
    """Return a number and what it is of: `1 plugin`, `2 plugins`."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def duration(seconds: float) -> str:
    """Return a duration for people, in its two largest units: `3 h 25 min`, `12 s`."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def state_text(state: str) -> Text:
    """Return a plugin's state in its colour."""
    return Text(state, style=_STATE_STYLES[state])
