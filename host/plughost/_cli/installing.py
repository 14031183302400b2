"""`plughost install`: install plugins, and let the running host take them up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from plughost._api.errors import CommandError
from plughost._cli.operating import (
    changing_options,
    finish,
    index_options,
    readable_errors,
    show_plan,
    taking_up,
    wheels_of,
    working,
)
from plughost._cli.options import config_option, json_option
from plughost._operations.changing import Outcome, carry_out, plan_install
from plughost._operations.locking import LOCK_NAME
from plughost._operations.names import to_requirement
from plughost._operations.places import remember
from plughost._plugins.environment import Environment

if TYPE_CHECKING:
    from plughost._settings.sources import Settings


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--upgrade", "-U", is_flag=True, help="Take the newest version of what is installed already.")
@click.option("--as-is", is_flag=True, help="The names are those of distributions: add no prefix.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Install the set of this bundle, without any network.",
)
@index_options
@changing_options
@json_option
@config_option
def install(
    *,
    settings: Settings,
    names: tuple[str, ...],
    upgrade: bool,
    as_is: bool,
    bundle: Path | None,
    where: list[str],
    dry_run: bool,
    no_reload: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Install plugins with pip, and let the running host serve them.

    NAME is a plugin's name, such as messages, which means the distribution plughost-messages; or what pip takes:
    messages==1.2, a path, a URL. When pip fails, or the running host can't serve with the change, the versions that
    were there before are put back. Exit code 0 when all serves, 1 when it does not.
    """
    if bool(names) == bool(bundle):
        raise click.UsageError("Give the plugins' names, or --bundle.")
    with readable_errors(), working(as_json) as tell:
        if bundle is not None:
            lock = bundle / LOCK_NAME
            if not lock.is_file():
                raise CommandError(f"{bundle} is no bundle: it has no {LOCK_NAME}.")
            requirements, where = ["-r", str(lock)], ["--no-index", "--find-links", str(bundle), "--require-hashes"]
        else:
            plugins = Environment().owners
            requirements = [name if as_is else to_requirement(name, plugins) for name in names]
        options = [*where, *(["--upgrade"] if upgrade else [])]
        plan = plan_install(requirements, options, wheels_of(settings), tell)
    show_plan(plan, as_json, "Installed already; nothing to install.")
    if dry_run:
        finish(Outcome(changes=plan.changes), as_json, dry_run=True)
        return
    with readable_errors(), working(as_json) as tell:
        outcome = carry_out(plan, wheels_of(settings), tell, take_up=taking_up(settings, no_reload), keep=keep)
    if bundle is None and not outcome.undone:
        remember(where)
    finish(outcome, as_json)
