"""The group `plughost`: the host's commands, and below them each plugin's own."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from plughost._commands import ALIASES, COMMANDS, SECTIONS

_SHARED_OPTIONS: Final = {"--config": 1, "--without": 1, "--dev": 0, "--strict": 0, "--json": 0}
"""The options that several commands share, and the number of values of each."""

_ELSEWHERE: Final = {
    "backup": "stores backup",
    "remove": "uninstall",
    "restore": "stores restore",
    "update": "install --upgrade",
    "upgrade": "install --upgrade",
}
"""What is called otherwise than people look for it; the nearest name may be one that drops data."""


class Commands(click.Group):
    """A group that imports a command only when it is needed: `plughost status` needs no web framework.

    Other commands come from the installed plugins. A broken plugin breaks only its own.
    """

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """Run a command as this process. What happens at its end, see `limit_exit`, is click's object."""
        for stream in filter(None, (sys.stdout, sys.stderr)):
            for layer in (stream, getattr(stream, "buffer", stream)):
                layer.close = layer.flush  # a plugin, or its wrapper of the buffer, may close it; the host writes on
        with ExitStack() as at_exit:
            try:
                return super().__call__(*args, obj=at_exit, **extra)
            except OSError as error:
                from plughost._cli.ending import fail_without_room  # noqa: PLC0415 - see below

                fail_without_room(error)
                raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the host's commands, the available aliases, and the names of the other plugins that have commands."""
        from plughost._cli import plugin_commands  # noqa: PLC0415 - see above

        plugins = plugin_commands.names_with_commands(ctx)
        aliases = [name for name, plugin in ALIASES.items() if plugin in plugins]
        return [*sorted([*COMMANDS, *aliases]), *(name for name in plugins if name not in ALIASES.values())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the host's command of this name, else the alias, else the command of the plugin of this name."""
        if cmd_name not in COMMANDS:
            from plughost._cli import plugin_commands  # noqa: PLC0415 - see above

            return plugin_commands.find_alias(ctx, cmd_name) or plugin_commands.find(ctx, cmd_name)
        gc.disable()  # what is imported stays, so a collection would find nothing
        try:
            command: click.Command = resolve_name(f"plughost._cli.{COMMANDS[cmd_name]}")
        finally:
            gc.enable()
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Allow the options that commands share before the command, too."""
        try:
            Path.cwd()  # settings and relative paths start from it
        except FileNotFoundError:
            raise click.ClickException("The current folder was removed. Change to another one.") from None
        return super().parse_args(ctx, _move_shared_options(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. If there is none of this name, suggest the nearest one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = _ELSEWHERE.get(args[0]) or next(iter(get_close_matches(args[0], self.list_commands(ctx))), None)
            if meant is None or args[0].startswith("-"):
                raise
            message = f"No such command {args[0]!r}. Did you mean {meant!r}?"
            raise click.UsageError(message, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Print an error that its user can mend, wrapped at words on a terminal."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if type(error).show is not click.ClickException.show:  # an error that prints itself, such as a wrong usage
                raise
            self._fail(error.format_message(), error.exit_code, error)
        except click.exceptions.Exit:  # such as that of --help, which needs no imports
            raise
        except Exception as error:
            from plughost import CertificateError, CommandError, NotRunning  # noqa: PLC0415 - see above
            from plughost.stores import Busy, SetupError, Unavailable  # noqa: PLC0415 - see above

            if not isinstance(error, CertificateError | CommandError | NotRunning | Busy | SetupError | Unavailable):
                raise
            self._fail(str(error), 1, error)

    def _fail(self, message: str, exit_code: int, error: Exception) -> NoReturn:
        from plughost._cli.options import say  # noqa: PLC0415 - see above

        say(f"Error: {message}", err=True)
        raise SystemExit(exit_code) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, rows in self._sections(ctx):
            with formatter.section(section):
                formatter.write_dl(rows, col_max=20)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        commands = [row for _, rows in self._sections(ctx) for row in rows]
        return [CompletionItem(name, help=text) for name, text in commands if name.startswith(incomplete)]

    def _sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        present = self.list_commands(ctx)
        for section, commands in SECTIONS.items():
            if rows := [(name, text) for name, (_, text) in commands.items() if name in present]:
                yield section, rows
        others = [(name, self.get_command(ctx, name)) for name in present if name not in {*COMMANDS, *ALIASES}]
        rows = [(name, _summary(command)) for name, command in others if command is not None]
        if rows:
            yield "Plugin commands", rows


def _summary(command: click.Command) -> str:
    return ", ".join(sorted(command.commands)) if isinstance(command, click.Group) else command.get_short_help_str(200)


def _move_shared_options(args: list[str]) -> list[str]:
    """Move shared options that precede the command behind it."""
    end = 0
    while end < len(args) and (name := args[end].partition("=")[0]) in _SHARED_OPTIONS:
        end += 1 if "=" in args[end] else 1 + _SHARED_OPTIONS[name]
    leading, rest = args[:end], args[end:]
    return [rest[0], *leading, *rest[1:]] if rest and not rest[0].startswith("-") else args


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 success; 1 a problem was found, or the host refused to start; "
    "2 the command line or the settings are invalid.",
)
@click.version_option(package_name="plughost", prog_name="plughost")
def main() -> None:
    """A plugin-based service host. It serves every installed plugin on a prefix of its own.

    Start with `plughost serve --dev`. `plughost COMMAND --help` shows the help of a command.
    """
    _open_streams()


def _open_streams() -> None:
    """Point the standard streams that this process was started without at the null device.

    Python has None in their place. Without this, the next file or socket would get their descriptors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open to the end
