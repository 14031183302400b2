"""`plughost install`: install plugins, and let the running host take them up."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plughost import Environment
from plughost_packages.attesting import verify_attestations
from plughost_packages.bundling import read_bundle
from plughost_packages.changing import Outcome, carry_out
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
from plughost_packages.locking import LOCK_NAME, write_lock
from plughost_packages.names import refuse_options, to_requirement
from plughost_packages.places import places, remember
from plughost_packages.planning import plan_install

if TYPE_CHECKING:
    from collections.abc import Callable

    from plughost import PluginContext
    from plughost_packages.settings import Settings


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
    context: PluginContext[Settings],
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
    with ExitStack() as stack:
        stack.enter_context(readable_errors())
        with working(as_json) as tell:
            for name in names:
                refuse_options(name)
            if bundle is None:
                plugins = Environment().owners
                requirements = [name if as_is else to_requirement(name, plugins) for name in names]
                looked = places(where, context.settings, context.host.settings_dir)
            else:
                lock = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plughost-")), LOCK_NAME)
                write_lock(lock, read_bundle(bundle))  # what was read is what pip gets
                requirements = ["-r", str(lock)]
                looked = ["--no-index", "--find-links", str(bundle.absolute()), "--require-hashes"]
            options = [*looked, *(["--upgrade"] if upgrade else [])]
            allowed = context.host.why_not_allowed
            planning = plan_install(
                requirements, options, wheels_of(context), tell, allowed=allowed, attested=_attested(context.settings)
            )
            plan = stack.enter_context(planning)
        show_plan(plan, as_json, "Installed already; nothing to install.")
        if dry_run:
            finish(Outcome(changes=plan.changes), as_json, dry_run=True)
            return
        with audited(context, plan) as event, working(as_json) as tell:
            take_up = taking_up(context, no_reload)
            outcome = carry_out(plan, wheels_of(context), tell, take_up=take_up, allowed=allowed, keep=keep)
            event["outcome"] = outcome.word
    if bundle is None and not outcome.undone:
        remember(where)
    finish(outcome, as_json)


def _attested(settings: Settings) -> Callable[[Path], None]:
    return lambda file: verify_attestations(file, settings.attested_by, required=settings.require_attestations)
