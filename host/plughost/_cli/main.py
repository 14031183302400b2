"""The group `plughost`: the host's commands, and below them each plugin's own."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from plughost._cli.lent import LENT

COMMANDS: Final = {
    "cert": "cert:cert",
    "check": "serving:check",
    "disable": "switching:disable",
    "drain": "controlling:drain",
    "enable": "switching:enable",
    "plugins": "showing:plugins",
    "purge": "stores:purge_command",
    "reload": "controlling:reload",
    "restart": "restarting:restart",
    "routes": "showing:routes",
    "serve": "serving:serve",
    "settings": "showing:settings",
    "status": "controlling:status",
    "stores": "stores:stores_command",
}
"""The host's commands, and where in this package each is."""


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

            if cmd_name in LENT:
                return plugin_commands.lent(ctx, LENT[cmd_name], cmd_name)
            return plugin_commands.find(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"plughost._cli.{module}"), name)
        return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 all is well; 1 something is wrong, or the host refused to start; "
    "2 the command line or the settings can't be used.",
)
@click.version_option(package_name="plughost", prog_name="plughost")
def main() -> None:
    """A plugin-based service host: every installed plugin is served, each on its own prefix."""
