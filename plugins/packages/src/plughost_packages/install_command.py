"""`plughost install`: install plugins, and reload the running host."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from plughost import CommandError, Environment
from plughost_packages.bundling import read_bundle
from plughost_packages.changing import Outcome, carry_out
from plughost_packages.commands import (
    changing_options,
    finish,
    index_options,
    json_option,
    refusals_audited,
    show_plan,
    working,
)
from plughost_packages.keeping import refuse_halves, remove_debris
from plughost_packages.locking import LOCK_NAME, hash_of, write_lock
from plughost_packages.names import is_place, is_source, place_of, refuse_options, to_requirement
from plughost_packages.places import are_nowhere, places, remember
from plughost_packages.planning import plan_install, without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plughost import PluginContext
    from plughost_packages.settings import Settings

_NO_SOURCE: Final = (
    "No index or folder was named, so no newer version could be found. Name one with --index-url or --find-links, or "
    "with index_url or find_links in [plugins.packages]."
)


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--upgrade", "-U", is_flag=True, help="Upgrade installed plugins to the newest version.")
@click.option("--as-is", is_flag=True, help="NAMEs are distributions: don't add a prefix.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Install the distributions of this bundle, without a network.",
)
@click.option("--yes", is_flag=True, help="Build sources without asking.")
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
    yes: bool,
    where: list[str],
    dry_run: bool,
    no_reload: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Install plugins with pip, and reload the running host.

    NAME is the name of a plugin, or what pip accepts, such as messages==1.2, a path or a URL. The plugin messages is
    the distribution plughost-messages. If a path or URL is not a wheel, reading its requirements runs its code, so the
    command asks first. If pip fails, or if the running host can't serve with the change, the previous versions are
    restored. Exit code 0 if every plugin serves without trouble, else 1.
    """
    if bool(names) == bool(bundle):
        raise click.UsageError("Give either the names of plugins or --bundle.")
    with ExitStack() as stack:
        with nullcontext() if dry_run else refusals_audited(context, [str(bundle)] if bundle else names):
            for name in names:
                refuse_options(name)
            (refuse_halves if dry_run else remove_debris)()
            if bundle is None:
                plugins = Environment().owners
                requirements = [name if as_is else to_requirement(name, plugins) for name in names]
                sources = places(context, where)
            else:
                lock = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plughost-")), LOCK_NAME)
                write_lock(lock, read_bundle(bundle))  # a copy: pip gets exactly what was verified
                requirements = ["-r", str(lock)]
                sources = ["--no-index", "--find-links", str(bundle.absolute()), "--require-hashes"]
            _ask_to_build(list(filter(is_source, names)), yes=yes)
            with working(as_json) as tell:
                plan = stack.enter_context(plan_install(context, requirements, sources, tell, upgrade=upgrade))
        if upgrade and not plan.changes and not all(map(is_place, requirements)) and are_nowhere(sources):
            raise CommandError(_NO_SOURCE)
        show_plan(plan, as_json, "Already installed; nothing to install.")
        if dry_run:
            finish(Outcome(changes=plan.changes), as_json, dry_run=True)
            return
        with working(as_json) as tell:
            outcome = carry_out(context, plan, tell, accept=None if no_reload else (), keep=keep)
    if bundle is None and not outcome.undone:
        remember(where)
    finish(outcome, as_json)


def _ask_to_build(sources: Sequence[str], *, yes: bool) -> None:
    """Ask before building sources: their own code must run before their requirements are known."""
    for source in sources:
        place = place_of(source)
        file = Path(place.partition("[")[0])  # without extras
        if ":" not in place and not file.exists():
            raise CommandError(f"There is no file or folder {file}.")
        digest = hash_of(file) if file.is_file() else "without a hash"
        click.echo(
            f"{without_credentials(place)} is not a wheel: reading its metadata runs its code.\n  {digest}",
            err=True,
        )
    if sources and not yes:
        click.confirm("Build it?", abort=True, err=True)
