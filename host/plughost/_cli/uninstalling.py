"""`plughost uninstall`: remove plugins, and their data where that is wanted, and let the running host go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from plughost._api.errors import CommandError
from plughost._cli.operating import (
    changing_options,
    finish,
    readable_errors,
    show_plan,
    taking_up,
    wheels_of,
    working,
)
from plughost._cli.options import config_option, console, json_option
from plughost._cli.stores import as_table, look_into
from plughost._logging import silent_logger
from plughost._operations.changing import Outcome, carry_out, plan_uninstall
from plughost._operations.environment import unused_without
from plughost._operations.names import to_distributions
from plughost._plugins.environment import Environment
from plughost._runtime.host import Host
from plughost.stores._care import purge
from plughost.stores._errors import StoreError

if TYPE_CHECKING:
    from plughost._settings.sources import Settings
    from plughost.stores import OpenStore


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--purge", "with_data", is_flag=True, help="Drop all that the plugins keep in their stores, too.")
@click.option("--with-unused", is_flag=True, help="Uninstall what nothing else requires, too.")
@click.option("--force", is_flag=True, help="Uninstall even what other plugins require; they are blocked then.")
@click.option("--yes", is_flag=True, help="Don't ask. Data is kept, unless --purge is given.")
@changing_options
@json_option
@config_option
def uninstall(
    *,
    settings: Settings,
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
    """Uninstall plugins, and let the running host go on without them.

    What other plugins require stays, unless --force is given. Their data stays, unless you say otherwise: the stores
    are dropped once the running host has let go of them, and while the plugins can still be put back.
    """
    with readable_errors():
        environment = Environment()
        keys = _allowed(to_distributions(names, environment), environment, force=force)
    unused = unused_without(environment, keys)
    if with_unused:
        keys, unused = [*keys, *unused], []
    plugins = [name for key in keys for name in environment.plugins_of(key)]
    stores = _stores(settings, plugins, needed=with_data)
    plan = plan_uninstall(keys)
    show_plan(plan, as_json, "")
    say = click.echo if not as_json else lambda _: None
    if unused:
        say(f"Nothing else requires {', '.join(unused)}: --with-unused uninstalls that, too.")
    drop = [] if dry_run else _asked(stores, plugins, with_data=with_data, yes=yes or as_json)
    if dry_run:
        finish(Outcome(changes=plan.changes), as_json, dry_run=True)
        return

    def drop_stores() -> None:
        for store in drop:
            try:
                purge(store)
            except StoreError as error:
                raise CommandError(str(error)) from error
            say(f"Dropped the store {store.name} in {store.engine.config.place}.")

    with readable_errors(), working(as_json) as tell:
        take_up = taking_up(settings, no_reload, accept=_blocked(environment, keys))
        outcome = carry_out(
            plan, wheels_of(settings), tell, take_up=take_up, keep=keep, afterwards=drop_stores if drop else None
        )
    if stores and not drop:
        say(f"Their data is kept: {', '.join(store.engine.config.place for store in stores)}.")
    finish(outcome, as_json)


def _allowed(keys: list[str], environment: Environment, *, force: bool) -> list[str]:
    """Refuse to remove what the host or another plugin needs."""
    shared = [environment.name(key) for key in keys if key in environment.shared]
    if shared:
        raise CommandError(f"The host itself runs on {', '.join(shared)}.")
    dependents = environment.dependents(keys)
    if dependents and not force:
        lines = [
            f"{environment.name(key)} {environment.versions[key]} requires {', '.join(needed)}"
            for key, needed in dependents.items()
        ]
        raise CommandError("\n".join([*lines, "Uninstall those as well, or use --force: they can't be served then."]))
    return keys


def _blocked(environment: Environment, keys: Collection[str]) -> list[str]:
    """Return the plugins that can't be served without some distributions."""
    gone = set(keys)
    while more := environment.dependents(gone).keys() - gone:
        gone |= more
    return [name for key in gone - set(keys) for name in environment.plugins_of(key)]


def _stores(settings: Settings, plugins: Sequence[str], *, needed: bool) -> list[OpenStore[Any]]:
    """Return the stores of plugins that hold something, prepared while their code is still there."""
    enabled = replace(settings, host=settings.host.model_copy(update={"disabled": ()}))
    seen = Host(enabled, logger=silent_logger()).look()
    broken = [str(entry.failure) for entry in seen.registry if entry.name in plugins and entry.failure is not None]
    try:
        found = [store for store in seen.stores.values() if store.plugin in plugins and store.engine.exists()]
    except StoreError as error:
        found, broken = [], [*broken, str(error)]
    if broken and needed:
        raise click.ClickException("\n".join(["It can't be told what is kept, so nothing is purged:", *broken]))
    return found


def _asked(
    stores: Sequence[OpenStore[Any]], plugins: Sequence[str], *, with_data: bool, yes: bool
) -> list[OpenStore[Any]]:
    """Ask whether to go on, and whether to drop the data; return the stores to drop."""
    if yes:
        return list(stores) if with_data else []
    if not stores:
        click.confirm("Go on?", default=True, abort=True)
        return []
    console(stderr=True).print(as_table(look_into(stores)))
    if not with_data and not click.confirm("Drop this data for good, too? (No keeps it)", default=False):
        click.confirm("Uninstall, and keep the data?", default=True, abort=True)
        return []
    names = " ".join(plugins)
    if click.prompt(f"This cannot be undone. Type {names} to drop all of it", default="", show_default=False) != names:
        raise click.Abort
    return list(stores)
