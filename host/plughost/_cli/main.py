"""The group `plughost`: the host's commands, and below them each plugin's own."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from plughost._commands import COMMANDS, LENT, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUES: Final = {"--config": 1, "--without": 1, "--dev": 0, "--strict": 0, "--json": 0}
"""The options that several commands share, and how many words follow each."""

_ELSEWHERE: Final = {
    "backup": "stores backup",
    "remove": "uninstall",
    "restore": "stores restore",
    "update": "install --upgrade",
    "upgrade": "install --upgrade",
}
"""What is called otherwise than people look for it; the nearest name may be one that drops data."""


class Commands(click.Group):
    """A group whose commands are imported when they are asked for: `plughost status` needs no web framework.

    Those that are not the host's are the installed plugins'. A broken plugin breaks only its own.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the host's commands and those lent to it, and the names of the other plugins that have some."""
        from plughost._cli import plugin_commands  # noqa: PLC0415 - see above

        plugins = plugin_commands.names(ctx)
        lent = [name for name, plugin in LENT.items() if plugin in plugins]
        return [*sorted([*COMMANDS, *lent]), *(name for name in plugins if name not in LENT.values())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the host's command of a name, else that of the plugin of that name."""
        if cmd_name not in COMMANDS:
            from plughost._cli import plugin_commands  # noqa: PLC0415 - see above

            return plugin_commands.lent(ctx, cmd_name) or plugin_commands.find(ctx, cmd_name)
        command: click.Command = resolve_name(f"plughost._cli.{COMMANDS[cmd_name]}")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let the options that commands share stand before the command as well as behind it."""
        return super().parse_args(ctx, _with_command_first(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; name the nearest one where there is none of this name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = _ELSEWHERE.get(args[0]) or next(iter(get_close_matches(args[0], self.list_commands(ctx))), None)
            if meant is None or args[0].startswith("-"):
                raise
            message = f"No such command {args[0]!r}. Did you mean {meant!r}?"
            raise click.UsageError(message, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it fails with is wrapped at words on a terminal."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if type(error).show is not click.ClickException.show:  # such as that of a wrong usage
                raise
            from plughost._cli.options import say  # noqa: PLC0415 - see above

            say(f"Error: {error.format_message()}", err=True)
            raise SystemExit(error.exit_code) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in the order in which people need them, then the plugins'."""
        present = self.list_commands(ctx)
        for section, told in self._sections(ctx, present):
            with formatter.section(section):
                formatter.write_dl(told, col_max=20)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        rows = [row for _, told in self._sections(ctx, self.list_commands(ctx)) for row in told]
        return [CompletionItem(name, help=text) for name, text in rows if name.startswith(incomplete)]

    def _sections(self, ctx: click.Context, present: list[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        for section, told in SECTIONS.items():
            if rows := [(name, text) for name, (_, text) in told.items() if name in present]:
                yield section, rows
        others = [(name, self.get_command(ctx, name)) for name in present if name not in {*COMMANDS, *LENT}]
        rows = [(name, _told(command)) for name, command in others if command is not None]
        if rows:
            yield "Of plugins", rows


def _told(command: click.Command) -> str:
    return ", ".join(sorted(command.commands)) if isinstance(command, click.Group) else command.get_short_help_str(200)


def _with_command_first(args: list[str]) -> list[str]:
    """Return arguments with the shared options that stand before the command behind it."""
    end = 0
    while end < len(args) and (name := args[end].partition("=")[0]) in _VALUES:
        end += 1 if "=" in args[end] else 1 + _VALUES[name]
    leading, rest = args[:end], args[end:]
    return [rest[0], *leading, *rest[1:]] if rest and not rest[0].startswith("-") else args


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 all is well; 1 something is wrong, or the host refused to start; "
    "2 the command line or the settings can't be used.",
)
@click.version_option(package_name="plughost", prog_name="plughost")
def main() -> None:
    """A plugin-based service host: every installed plugin is served, each on its own prefix.

    Begin with `plughost serve --dev`. Say `plughost COMMAND --help` for all of a command.
    """
    _open_streams()


def _open_streams() -> None:
    """Point the standard streams that this process was started without at the null device.

    Python has None in their place. Without this, the next file or socket would get their descriptors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open to the end
