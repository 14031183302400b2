"""`plughost install`: install plugins, and let the running host take them up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plughost import CommandError, Environment
from plughost_packages.changing import Outcome, carry_out, plan_install
from plughost_packages.commands import (
    audited,
    changing_options,
    finish,
    index_options,
    json_option,
    readable_errors,
    show_plan,
    taking_up,
    wheels_of,
    working,
)
from plughost_packages.locking import LOCK_NAME
from plughost_packages.names import to_requirement
from plughost_packages.places import remember

if TYPE_CHECKING:
    from plughost import PluginContext


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
@click.pass_obj
def install(
    context: PluginContext[Any],
    *,
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
        plan = plan_install(requirements, options, wheels_of(context), tell)
    show_plan(plan, as_json, "Installed already; nothing to install.")
    if dry_run:
        finish(Outcome(changes=plan.changes), as_json, dry_run=True)
        return
    with readable_errors(), audited(context, plan) as event, working(as_json) as tell:
        outcome = carry_out(plan, wheels_of(context), tell, take_up=taking_up(context, no_reload), keep=keep)
        event["outcome"] = outcome.word
    if bundle is None and not outcome.undone:
        remember(where)
    finish(outcome, as_json)
