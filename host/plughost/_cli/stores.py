"""`plughost stores` and `plughost purge`: inspect, check, back up, restore and drop the stores of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.filesize import decimal

from plughost._backups import backup, record_backup, restore
from plughost._cli.completing import plugin_names, store_names
from plughost._cli.options import (
    EXIT_PROBLEMS,
    Group,
    config_file,
    config_option,
    console,
    group_config_option,
    is_wide,
    json_option,
    load_settings,
    preview_generation,
    print_json,
    print_rows,
    say,
    spinner,
)
from plughost._runtime.audit import CommandAudit
from plughost._settings.errors import did_you_mean
from plughost.stores import SetupError, Statistics, StoreError, purge, statistics
from plughost.stores._manager import Stores

if TYPE_CHECKING:
    from rich.console import Console

    from plughost._settings.sources import Settings
    from plughost.stores import OpenStore

_UNWRAPPED_WIDTH: Final = 4096
_NOT_CREATED: Final = "not created yet"
_OWN_SHELL: Final = " Commands read the environment of their own shell: give it the variables that the host has."


@contextmanager
def _with_short_errors() -> Iterator[None]:
    """Show any error of a store without a traceback: even an unknown one is the database's, and says what it is."""
    try:
        yield
    except StoreError as error:
        raise click.ClickException(str(error)) from error


@click.group("stores", cls=Group, invoke_without_command=True)
@json_option
@group_config_option
@click.pass_context
def stores_command(ctx: click.Context, as_json: bool) -> None:
    """List, check, back up and restore stores.

    Without a command, list the stores with database, place, schema, rows and size. Exit code 1 if a store can't be
    read, or if a plugin failed so early that its stores are unknown.
    """
    if ctx.invoked_subcommand is not None:
        return
    stores = _prepare_stores(load_settings(config_file(ctx)))
    found = [statistics(stores[name]) for name in sorted(stores)]
    if as_json:
        print_json([asdict(each) for each in found])
    elif not found and not stores.failures:
        say("No installed plugin has a store.")
    elif found:
        _print_statistics(found, console())
    for each in found:
        if each.trouble is not None:
            say(f"{each.store}: {_reason(each)}", err=True)
    if stores.failures or any(each.trouble is not None for each in found):
        raise SystemExit(EXIT_PROBLEMS)


@stores_command.command("backup")
@click.argument("store", shell_complete=store_names)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option
@_with_short_errors()
def backup_command(settings: Settings, store: str, file: Path) -> None:
    """Back up the store STORE to FILE.

    The backup is consistent even while a host serves the store. PostgreSQL stores are backed up with pg_dump.
    """
    chosen = _find_store(stores_of_installed_plugins(settings), store)
    with spinner(f"Copying {store}"):
        backup(chosen, file)
    record_backup(settings.data_dir, store)
    say(f"Wrote {file} ({decimal(file.stat().st_size)}).")


@stores_command.command("check")
@click.argument("names", metavar="[STORE]...", nargs=-1, shell_complete=store_names)
@config_option
def check_command(settings: Settings, names: tuple[str, ...]) -> None:
    """Check the integrity of all stores, or only of the STOREs named.

    A host may serve the stores meanwhile. Exit code 1 if a store has a problem. Without STOREs, also if a plugin failed
    so early that its stores are unknown.
    """
    stores = stores_of_installed_plugins(settings) if names else _prepare_stores(settings)
    chosen = [_find_store(stores, name) for name in names] or [stores[name] for name in sorted(stores)]
    with spinner("Checking every page and row"):
        found = {each.name: _check_store(each) for each in chosen}
    for name, (_, state) in found.items():
        say(f"{name}: {state}")
    if not all(good for good, _ in found.values()) or (stores.failures and not names):
        raise SystemExit(EXIT_PROBLEMS)


def _check_store(store: OpenStore[Any]) -> tuple[bool, str]:
    """Check all data of a store. Return whether nothing is wrong, and its state."""
    try:
        store.database.check()
    except StoreError as error:
        return False, str(error).removeprefix(f"store {store.name}: ")
    found = statistics(store)
    missing = sorted(set(store.declared.tables) - set(found.rows))
    if found.trouble is not None:
        return False, _reason(found)
    if found.schema and missing:
        return False, f"it lacks {', '.join(f'the table {table}' for table in missing)}: restore a backup"
    return True, "in order" if found.schema else _NOT_CREATED


@stores_command.command("restore")
@click.argument("store", shell_complete=store_names)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@config_option
@_with_short_errors()
def restore_command(settings: Settings, store: str, file: Path, yes: bool) -> None:
    """Replace all data of the store STORE with the backup FILE.

    No host may serve the store meanwhile. PostgreSQL stores are restored with pg_restore.
    """
    chosen = _find_store(stores_of_installed_plugins(settings), store)
    if not yes:
        _refuse_if_served([chosen])
        click.confirm(f"Replace all data in {chosen.database.config.place}?", abort=True)
    recording = CommandAudit(settings).recording("restore", target=[store], file=str(file))
    with recording, spinner(f"Restoring {store}"):
        schema = restore(chosen, file)
    say(f"Restored {store} with schema {schema}.")


@click.command("purge")
@click.argument("plugin", shell_complete=plugin_names)
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@config_option
@_with_short_errors()
def purge_command(settings: Settings, plugin: str, yes: bool) -> None:
    """Drop all data of PLUGIN from its stores, permanently.

    No host may serve the stores meanwhile.
    """
    stores = stores_of_installed_plugins(settings)
    owned = [store for _, store in sorted(stores.items()) if store.plugin == plugin]
    if not owned:
        _print_problems(stores)
        if any(label.startswith(f"{plugin} (") for label in stores.failures):
            raise click.ClickException(f"Nothing was dropped, since the stores of {plugin} are unknown: see above.")
        raise click.ClickException(
            f"No installed plugin named {plugin} has a store. If it was uninstalled, install it again: only the plugin "
            "knows which data is its own."
        )
    if not yes:
        _refuse_if_served(owned)
    _print_statistics(map(statistics, owned), console(stderr=True))
    if not yes:
        answer = click.prompt(f"This cannot be undone. Type {plugin} to drop all data", default="", show_default=False)
        if answer != plugin:
            raise click.Abort
    audit = CommandAudit(settings)
    for store in owned:
        with audit.recording("purge", target=[store.name]):
            purge(store)
            say(f"Dropped the store {store.name} in {store.database.config.place}.")


def _print_statistics(found: Iterable[Statistics], out: Console) -> None:
    names: tuple[str, ...] = ("store", "plugin", "database", "schema", "rows", "size", "place")
    rows: list[tuple[str, ...]] = [
        (
            each.store,
            each.plugin,
            each.dialect,
            "?" if each.trouble else _schema(each),
            "\n".join(f"{name} {count:,}" for name, count in each.rows.items()) or "-",
            "?" if each.trouble and not each.size else decimal(each.size),
            each.place,
        )
        for each in found
    ]
    wide = ["plugin", "database", "place"]
    columns = zip(names, *rows, strict=True)
    needed = sum(2 + max(len(text) for cell in column for text in cell.split("\n")) for column in columns) - 2
    if is_wide(out) and out.file.isatty() and needed > out.width:
        print_rows(out, names[:-1], [row[:-1] for row in rows], wide=wide, omitted="")
        out.print()
        names, rows = ("store", "place"), [(row[0], row[-1]) for row in rows]
    if is_wide(out):
        out.width = _UNWRAPPED_WIDTH  # a path or URL on one line can be copied
    print_rows(out, names, rows, wide=wide, omitted="plugin, database and place")


def _reason(found: Statistics) -> str:
    """Return what is wrong with a store, without its name."""
    return str(found.trouble).removeprefix(f"store {found.store}: ")


def _schema(found: Statistics) -> str:
    if found.schema == found.latest:
        return str(found.schema)
    return f"{found.schema} of {found.latest}" if found.schema else _NOT_CREATED


def _prepare_stores(settings: Settings) -> Stores:
    """Return the stores, prepared but not open, and print what is wrong with them."""
    stores = stores_of_installed_plugins(settings)
    _print_problems(stores)
    return stores


def _print_problems(stores: Stores) -> None:
    for plugin, failure in stores.failures.items():
        say(f"{plugin}: {failure}", err=True)
    for doubt in stores.doubts:
        say(doubt, err=True)


def stores_of_installed_plugins(settings: Settings) -> Stores:
    """Return the stores of the installed plugins, even disabled ones, without opening them.

    If a plugin failed after it had declared its stores, they are included, with an entry in `doubts`. If it failed
    before, it is in `failures`.
    """
    disabled = settings.host.disabled
    entries = list(preview_generation(settings).registry)
    if disabled:
        enabled = preview_generation(settings.with_all_enabled())
        entries += [entry for entry in enabled.registry if entry.name in disabled]
    stores: dict[str, OpenStore[Any]] = {}
    failures, doubts = {}, []
    for entry in entries:
        given = entry.context.stores if entry.declared.stores else {}
        own = {name: store for name, store in given.items() if store.plugin == entry.name}
        stores = own | stores
        if entry.failure is None or (entry.hooks and "register_stores" not in entry.hooks):
            continue
        if entry.failure.stage == "conflict" and entry.name in disabled:  # the conflict is why it was disabled
            continue
        if own:
            doubts.append(f"{entry.installed.label} does not serve: {entry.failure}")
        else:
            is_of_values = entry.failure.stage == "register_settings" and not entry.failure.trace
            hint = _OWN_SHELL if is_of_values else ""
            failures[entry.installed.label] = SetupError(f"its stores are unknown: {entry.failure}{hint}")
    return Stores(stores, failures, tuple(doubts))


def _find_store(stores: Stores, name: str) -> OpenStore[Any]:
    """Return a store. Only if it isn't there, print what is wrong with the others."""
    if name not in stores:
        _print_problems(stores)
        raise click.ClickException(f"There is no store {name}{did_you_mean(name, sorted(stores))}")
    return stores[name]


def _refuse_if_served(stores: Iterable[OpenStore[Any]]) -> None:
    """Refuse stores that a host serves, before the user is asked to confirm."""
    for store in stores:
        if store.database.exists():
            with store.database.exclusive_claim():
                pass
