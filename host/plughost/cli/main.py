"""The group `plughost`: the host's commands, and below them each plugin's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from plughost.cli.cert import cert
from plughost.cli.controlling import reload, status
from plughost.cli.locking import bundle_command, lock_command
from plughost.cli.operating import install, uninstall
from plughost.cli.plugin_commands import PluginCommands
from plughost.cli.restarting import restart
from plughost.cli.serving import check, serve
from plughost.cli.showing import plugins, routes, settings
from plughost.cli.stores import purge_command, stores_command
from plughost.cli.switching import disable, enable
from plughost.host import Host
from plughost.logs import silent_logger

if TYPE_CHECKING:
    from plughost.settings import Settings
    from plughost.stores import Stores


@click.group(
    cls=PluginCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 all is well; 1 something is wrong, or the host refused to start; "
    "2 the command line or the settings can't be used.",
)
@click.version_option(package_name="plughost", prog_name="plughost")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A plugin-based service host: every installed plugin is served, each on its own prefix."""
    ctx.obj = _stores


def _stores(settings: Settings) -> Stores:
    """Return the stores of the installed plugins, disabled ones too, without opening them."""
    enabled = settings.host.model_copy(update={"disabled": ()})
    return Host(replace(settings, host=enabled), logger=silent_logger()).look().stores


for command in (
    *(serve, status, reload, restart, install, uninstall, enable, disable),
    *(lock_command, bundle_command),
    *(plugins, routes, settings, check, cert, stores_command, purge_command),
):
    main.add_command(command)
