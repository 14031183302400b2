"""`plughost install` and `plughost uninstall`: change what is installed, and let the running host take it up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.text import Text

from plughost.cli.controlling import show_reload
from plughost.cli.options import EXIT_PROBLEMS, config_option, console, json_option, plain_table, print_json, text
from plughost.cli.stores import as_table, look_into
from plughost.host import Host
from plughost.logs import silent_logger
from plughost.operations import OperationError
from plughost.operations.changing import Outcome, Plan, carry_out, plan_install, plan_uninstall, reload_running
from plughost.operations.environment import Environment
from plughost.operations.locking import LOCK_NAME
from plughost.operations.names import to_distributions, to_requirement
from plughost.stores.care import purge
from plughost.stores.errors import StoreError

if TYPE_CHECKING:
    from plughost.operations.pip import Tell
    from plughost.settings import Settings
    from plughost.stores import OpenStore

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

# pip's own, passed on: what each is called, whether it takes a value, and the help.
_INDEX_OPTIONS = (
    ("--index-url", "-i", "Index to look in instead of PyPI."),
    ("--extra-index-url", None, "Further index; repeatable."),
    ("--find-links", "-f", "Folder or page with distributions; repeatable."),
    ("--trusted-host", None, "Host to reach without a valid certificate; repeatable."),
    ("--constraint", "-c", "File with constraints on versions; repeatable."),
)
_INDEX_FLAGS = (
    ("--no-index", "Look in no index, only where --find-links says."),
    ("--pre", "Take pre-releases too."),
)


def index_options(command: CommandT) -> CommandT:
    """Add the options that tell pip where to look; the command gets them as `where`, ready for pip."""
    names = [option.lstrip("-").replace("-", "_") for option, *_ in (*_INDEX_OPTIONS, *_INDEX_FLAGS)]

    @functools.wraps(command)
    def collected(*args: Any, **given: Any) -> Any:
        where: list[str] = []
        for name in names:
            value = given.pop(name)
            option = f"--{name.replace('_', '-')}"
            where += [option] if value is True else [part for each in value or () for part in (option, each)]
        return command(*args, where=where, **given)

    wrapped: Callable[..., Any] = collected
    for flag, told in reversed(_INDEX_FLAGS):
        wrapped = click.option(flag, is_flag=True, help=told)(wrapped)
    for option, short, told in reversed(_INDEX_OPTIONS):
        wrapped = click.option(option, *((short,) if short else ()), multiple=True, help=told)(wrapped)
    return wrapped  # type: ignore[return-value] # it takes pip's options in the place of `where`


def changing_options(command: CommandT) -> CommandT:
    """Add what every command has that changes what is served: `--dry-run`, `--no-reload` and `--keep`."""
    for option in (
        click.option("--keep", is_flag=True, help="Leave the change even if the running host refuses it."),
        click.option("--no-reload", is_flag=True, help="Don't let a running host take it up."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
    ):
        command = option(command)
    return command


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
                raise OperationError(f"{bundle} is no bundle: it has no {LOCK_NAME}.")
            requirements, where = ["-r", str(lock)], ["--no-index", "--find-links", str(bundle), "--require-hashes"]
        else:
            plugins = Environment().plugins
            requirements = [name if as_is else to_requirement(name, plugins) for name in names]
        options = [*where, *(["--upgrade"] if upgrade else [])]
        plan = plan_install(requirements, options, wheels_of(settings), tell)
    _show_plan(plan, as_json, "Installed already; nothing to install.")
    if dry_run:
        _finish(Outcome(changes=plan.changes), as_json, dry_run=True)
        return
    with readable_errors(), working(as_json) as tell:
        outcome = carry_out(plan, wheels_of(settings), tell, take_up=_take_up(settings, no_reload), keep=keep)
    _finish(outcome, as_json)


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
    unused = environment.unused_without(keys)
    if with_unused:
        keys, unused = [*keys, *unused], []
    plugins = [name for key in keys for name in environment.plugins_of(key)]
    stores = _stores(settings, plugins, needed=with_data)
    plan = plan_uninstall(keys)
    _show_plan(plan, as_json, "")
    say = click.echo if not as_json else lambda _: None
    if unused:
        say(f"Nothing else requires {', '.join(unused)}: --with-unused uninstalls that, too.")
    drop = [] if dry_run else _asked(stores, plugins, with_data=with_data, yes=yes or as_json)
    if dry_run:
        _finish(Outcome(changes=plan.changes), as_json, dry_run=True)
        return

    def drop_stores() -> None:
        for store in drop:
            purge(store)
            say(f"Dropped the store {store.name} in {store.engine.config.place}.")

    with readable_errors(), working(as_json) as tell:
        take_up = _take_up(settings, no_reload, accept=_blocked(environment, keys))
        outcome = carry_out(
            plan, wheels_of(settings), tell, take_up=take_up, keep=keep, afterwards=drop_stores if drop else None
        )
    if stores and not drop:
        say(f"Their data is kept: {', '.join(store.engine.config.place for store in stores)}.")
    _finish(outcome, as_json)


def wheels_of(settings: Settings) -> Path:
    """Return the folder of wheels of what was replaced or removed, from which it can be installed again."""
    return settings.data_dir / "wheels"


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn what an operation raises into a message and exit code 1."""
    try:
        yield
    except (OperationError, StoreError) as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def working(quiet: bool) -> Iterator[Tell]:
    """Show on a terminal what is being done."""
    if quiet:
        yield lambda _: None
        return
    with console(stderr=True).status("Working out what to change") as status:
        yield lambda line: status.update(text(line[:100])) if line else None


def show_outcome(report: Mapping[str, Any] | None, *, undone: bool, what: str, data_dir_hint: bool = True) -> None:
    """Print what the running host made of a change."""
    out = console()
    if report is not None:
        show_reload(report, out)
        if report["restart_needed"]:
            out.print(text("Restart the host to take it up: plughost restart"))
    elif data_dir_hint:
        out.print(text("No host runs on the data folder; the next start takes it up."))
    if undone:
        console(stderr=True).print(Text(f"The running host refused the change: {what}", style="bold red"))


def _take_up(
    settings: Settings, no_reload: bool, accept: Collection[str] = ()
) -> Callable[[], Mapping[str, Any] | None]:
    return lambda: None if no_reload else reload_running(settings.data_dir, accept)


def _show_plan(plan: Plan, quiet: bool, nothing: str) -> None:
    if quiet:
        return
    out = console()
    if not plan.changes:
        out.print(text(nothing))
        return
    table = plain_table("distribution", "from", "to", "")
    for change in plan.changes:
        table.add_row(
            text(change.distribution),
            text(change.before or "-"),
            text(change.after or "removed"),
            Text("the host runs on it: restart needed", style="yellow") if change.needs_restart else text(""),
        )
    out.print(table)


def _finish(outcome: Outcome, as_json: bool, *, dry_run: bool = False) -> None:
    if as_json:
        print_json({**outcome.as_plain(), "dry_run": dry_run})
    elif dry_run:
        click.echo("Nothing was changed (--dry-run).")
    else:
        show_outcome(
            outcome.reload, undone=outcome.undone, what="all is as it was before. --keep would leave the change."
        )
    if not outcome.ok:
        raise SystemExit(EXIT_PROBLEMS)


def _allowed(keys: list[str], environment: Environment, *, force: bool) -> list[str]:
    """Refuse to remove what the host or another plugin needs."""
    shared = [environment.name(key) for key in keys if key in environment.shared]
    if shared:
        raise OperationError(f"The host itself runs on {', '.join(shared)}.")
    dependents = environment.dependents(keys)
    if dependents and not force:
        lines = [
            f"{environment.name(key)} {environment.versions[key]} requires {', '.join(needed)}"
            for key, needed in dependents.items()
        ]
        raise OperationError("\n".join([*lines, "Uninstall those as well, or use --force: they can't be served then."]))
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
    broken = [str(entry.failure) for entry in seen.roster if entry.name in plugins and entry.failure is not None]
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
