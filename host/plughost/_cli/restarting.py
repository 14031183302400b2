"""`plughost restart`: replace the running process by another one, without losing a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from plughost._cli.controlling import asked
from plughost._cli.options import EXIT_PROBLEMS, config_option, json_option, print_json

if TYPE_CHECKING:
    from plughost._settings.sources import Settings


@click.command()
@json_option
@config_option
def restart(settings: Settings, as_json: bool) -> None:
    """Replace the running host by a new process, which takes over its listening sockets.

    The new process is started with the same command line. The old one serves until the new one does, then answers
    what it has in flight and leaves. Where the new one can't serve, the old one goes on. What plugins keep in memory
    only is lost. Exit code 0 when the new process serves, else 1; plugins of it that don't are named.
    """
    answer = asked(settings.data_dir, "restart")
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        click.echo(f"Process {answer['pid']} serves, after {answer['seconds']:.2f} s.")
        for plugin in asked(settings.data_dir, "status")["plugins"]:
            if plugin["reason"]:
                click.echo(f"{plugin['name']} is {plugin['state']}: {plugin['reason']}", err=True)
    if not answer["ok"]:
        if not as_json:
            click.echo(f"Error: Not restarted, the host goes on as before: {answer['reason']}", err=True)
        raise SystemExit(EXIT_PROBLEMS)
