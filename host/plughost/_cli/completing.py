"""`plughost completion`: complete commands and names in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import get_completion_class

from plughost._cli.options import config_file, preview_generation, settings_or_defaults
from plughost._plugins.environment import Environment

if TYPE_CHECKING:
    from plughost._runtime.generation import Generation

_SETUP_LINES: Final = {
    "bash": 'eval "$(plughost completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(plughost completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "plughost completion fish > ~/.config/fish/completions/plughost.fish",
}


@click.command(epilog="\b\n" + "\n".join(_SETUP_LINES.values()))
@click.argument("shell", type=click.Choice(tuple(_SETUP_LINES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    It completes commands, options, and names of plugins, stores and settings.
    """
    completer = get_completion_class(shell)
    assert completer is not None, "click completes in these shells"
    click.echo(completer(ctx.find_root().command, {}, "plughost", "_PLUGHOST_COMPLETE").source())


def plugin_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the installed plugins."""
    return [each.name for each in Environment().plugins if each.name.startswith(incomplete)]


def store_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the installed plugins' stores."""
    return [name for name in sorted(_preview(ctx).stores) if name.startswith(incomplete)]


def setting_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the keys of settings, of plugins too."""
    return [each.key for each in _preview(ctx).setting_values() if each.key.startswith(incomplete)]


def _preview(ctx: click.Context) -> Generation:
    return preview_generation(settings_or_defaults(config_file(ctx)))
