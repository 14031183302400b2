"""The command `plughost openapi`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from plughost_openapi.addresses import Addresses
from plughost_openapi.document import describe
from plughost_openapi.rendering import render

if TYPE_CHECKING:
    from typing import TextIO

    from plughost import PluginContext
    from plughost_openapi.document import Format
    from plughost_openapi.settings import Settings


@click.command("openapi")
@click.argument("file", type=click.File("w", encoding="utf-8"), default="-")
@click.option("--site", default="main", show_default=True, help="The site to describe.")
@click.option(
    "--format", "as_format", type=click.Choice(["yaml", "json"]), help="Output format; default: by FILE's extension."
)
@click.option("--dev", is_flag=True, help="Describe what is served in development mode.")
@click.pass_obj
def openapi_command(
    context: PluginContext[Settings], file: TextIO, site: str, as_format: Format | None, dev: bool
) -> None:
    """Write the OpenAPI description of a site to FILE, or to standard output.

    The description shows what the installed plugins would serve with the current settings. No host needs to run.
    """
    view = context.host.preview(dev=dev)
    for plugin in view.plugins:
        if plugin.reason is not None:
            click.echo(f"warning: {plugin.name} is {plugin.state} and left out: {plugin.reason}", err=True)
    if site not in view.sites:
        there = ", ".join(view.sites) or "none"
        raise click.ClickException(f"nothing is mounted on a site {site}; there are: {there}")
    servers = Addresses(view, context.plugin, context.settings.servers).of(site)
    chosen = as_format or ("json" if file.name.endswith(".json") else "yaml")
    text = render(describe(view, site, servers, context.settings.about), chosen)
    try:
        file.write(text)
        file.flush()
    except BrokenPipeError:  # its reader has read enough
        raise
    except OSError as error:
        if file.name != "<stdout>":
            with suppress(OSError):  # of Python's buffer, which is larger from 3.14 on, a part may still be unwritten
                file.close()
        raise click.ClickException(f"{file.name} can't be written: {error.strerror}") from error
