"""`plughost uninstall`: remove plugins, optionally with their data, and reload the running host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal

from plughost import CommandError, Environment
from plughost.stores import StoreError, place_of, purge, statistics
from plughost_packages.changing import Outcome, carry_out
from plughost_packages.commands import (
    changing_options,
    finish,
    json_option,
    print_table,
    show_plan,
    working,
)
from plughost_packages.keeping import refuse_halves, remove_debris
from plughost_packages.names import to_distributions
from plughost_packages.planning import plan_uninstall

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.stores import OpenStore


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--purge", "with_data", is_flag=True, help="Also drop all data of the plugins.")
@click.option("--with-unused", is_flag=True, help="Also uninstall requirements that nothing else requires.")
@click.option("--force", is_flag=True, help="Uninstall even what other plugins require; these will be blocked.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation. Data is kept, unless --purge is given.")
@changing_options
@json_option
@click.pass_obj
def uninstall(
    context: PluginContext[Any],
    *,
    names: tuple[str, ...],
    with_data: bool,
    with_unused: bool,
    force: bool,
    yes: bool,
    dry_run: bool,
    no_reload: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Uninstall plugins, and reload the running host.

    Without --force, the command refuses to uninstall what other plugins require. Data is kept, unless you use --purge
    or agree to drop it when asked. Stores are dropped after the running host has closed them; if that fails, the
    plugins are restored.
    """
    if with_data and as_json and not (yes or dry_run):
        raise click.UsageError("--json can't ask for confirmation: --purge with it needs --yes.")
    (refuse_halves if dry_run else remove_debris)()
    environment = Environment()
    keys = to_distributions(names, environment)
    _refuse_required(keys, environment, force=force)
    unused = _unused_without(environment, keys)
    if with_unused:
        keys, unused = [*keys, *unused], []
    plugins = [name for key in keys for name in environment.plugins_of(key)]
    stores = _stores(context, plugins, needed=with_data)
    plan = plan_uninstall(keys)
    show_plan(plan, as_json, "")
    say = click.echo if not as_json else lambda _: None
    if unused:
        say(f"Nothing else requires {', '.join(unused)}. Use --with-unused to uninstall that, too.")
    if dry_run:
        finish(Outcome(changes=plan.changes), as_json, dry_run=True)
        return
    drop = _confirm(stores, plugins, with_data=with_data, yes=yes or as_json)

    def drop_stores() -> None:
        for where, store in drop.items():
            with context.audited("purge", target=[store.name]):
                try:
                    purge(store)
                except StoreError as error:
                    raise CommandError(str(error)) from error
            say(f"Dropped {where}.")

    with working(as_json) as tell:
        accept = None if no_reload else _blocked(environment, keys)
        outcome = carry_out(context, plan, tell, accept=accept, keep=keep, afterwards=drop_stores)
    if stores and not drop:
        say(f"Their data is kept: {', '.join(stores)}.")
    finish(outcome, as_json)


def _refuse_required(keys: Collection[str], environment: Environment, *, force: bool) -> None:
    """Refuse distributions that the host or another plugin requires."""
    shared = [environment.name(key) for key in keys if key in environment.shared]
    if shared:
        raise CommandError(f"The host itself requires {', '.join(shared)}.")
    dependents = environment.dependents(keys)
    if dependents and not force:
        lines = [
            f"{environment.name(key)} {environment.versions[key]} requires {', '.join(needed)}"
            for key, needed in dependents.items()
        ]
        raise CommandError("\n".join([*lines, "Uninstall those as well, or use --force, which blocks them."]))


def _unused_without(environment: Environment, keys: Collection[str]) -> list[str]:
    """Return distributions that were installed only as requirements of some others, and that nothing else requires."""
    removed = set(keys)
    candidates = environment.closure(keys) - environment.shared
    candidates = {key for key in candidates if not environment.installed[key].is_requested}
    while unused := {key for key in candidates - removed if not environment.dependents({key}).keys() - removed}:
        removed |= unused
    return sorted(removed - set(keys))


def _blocked(environment: Environment, keys: Collection[str]) -> list[str]:
    """Return the plugins that can't serve without these distributions."""
    removed = set(keys)
    while more := environment.dependents(removed).keys() - removed:
        removed |= more
    return [name for key in removed - set(keys) for name in environment.plugins_of(key)]


def _stores(context: PluginContext[Any], plugins: Sequence[str], *, needed: bool) -> dict[str, OpenStore[Any]]:
    """Return the non-empty stores of plugins by name and place, prepared before code and migrations are removed."""
    prepared = [store for store in context.control.stores.values() if store.plugin in plugins]
    broken = [f"{each.name}: {each.reason}" for each in context.host.plugins if each.name in plugins and each.reason]
    try:
        places = ((each, place_of(each)) for each in prepared if each.migrations)
        found = {f"the store {each.name} in {place}": each for each, place in places if place}
    except StoreError as error:
        found, broken = {}, [*broken, str(error)]
    if broken and needed:
        hint = "This command reads the environment of its own shell: give it the variables that the host has."
        raise click.ClickException("\n".join(["Their stores are unknown, so nothing was changed:", *broken, hint]))
    return found


def _confirm(
    stores: Mapping[str, OpenStore[Any]], plugins: Sequence[str], *, with_data: bool, yes: bool
) -> Mapping[str, OpenStore[Any]]:
    """Ask whether to uninstall, and whether to drop the data. Return the stores to drop."""
    if yes:
        return stores if with_data else {}
    if not stores:
        click.confirm("Uninstall?", default=True, abort=True)
        return {}
    found = [statistics(store) for store in stores.values()]
    print_table(
        {
            "store": [each.store for each in found],
            "plugin": [each.plugin for each in found],
            "rows": [", ".join(f"{name} {count:,}" for name, count in each.rows.items()) for each in found],
            "size": [decimal(each.size) for each in found],
            "place": [each.place for each in found],
        }
    )
    if not with_data:
        click.confirm("Uninstall?", default=True, abort=True)
        if not click.confirm("Drop this data permanently, too? (No keeps it)", default=False):
            return {}
    names = " ".join(plugins)
    if click.prompt(f"This cannot be undone. Type {names} to drop all data", default="", show_default=False) != names:
        raise click.Abort
    return stores
