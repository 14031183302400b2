"""The command `plughost dev-console`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from plughost import NotRunning

if TYPE_CHECKING:
    from plughost import PluginContext


@click.command("dev-console")
@click.pass_obj
def console_command(context: PluginContext[Any]) -> None:
    """Print a new one-time link to the console of the running host."""
    try:
        answer = context.query_host("link")
    except NotRunning as error:
        raise click.ClickException(f"{error} Start one with `plughost serve --dev`.") from None
    if "error" in answer:
        raise click.ClickException(f"The running host has no console; start it with --dev. ({answer['error']})")
    click.echo(answer["link"])
