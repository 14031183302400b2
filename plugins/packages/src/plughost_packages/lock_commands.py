"""`plughost lock` and `plughost bundle`: save the exact installed set, to install it elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal

from plughost import Environment
from plughost_packages.bundling import bundle, refuse_filled
from plughost_packages.commands import (
    index_options,
    json_option,
    print_json,
    print_table,
    working,
)
from plughost_packages.keeping import refuse_changing
from plughost_packages.locking import LOCK_NAME, Locked, compare, lock, members, read_lock, write_lock
from plughost_packages.places import places, remembered
from plughost_packages.planning import refuse_not_allowed
from plughost_packages.repacking import wheels_of

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from plughost import PluginContext
    from plughost_packages.settings import Settings


@click.command("lock")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--check", "check_only", is_flag=True, help="Compare what is installed with the file; write nothing.")
@click.option("--dry-run", is_flag=True, help="Only show what would be locked.")
@index_options
@json_option
@click.pass_obj
def lock_command(
    context: PluginContext[Settings],
    *,
    file: Path | None,
    check_only: bool,
    dry_run: bool,
    where: list[str],
    as_json: bool,
) -> None:
    """Write the host, the plugins and their requirements to FILE, with exact versions and hashes.

    FILE is plughost.lock next to the settings by default. It is a requirements file with hashes for this platform,
    which pip installs with --require-hashes. With --check, the command lists the differences between FILE and what is
    installed. The exit code is 1 if there are any.
    """
    refuse_changing()
    file = file or context.host.settings_dir / LOCK_NAME
    if check_only:
        _check(file, as_json=as_json)
    elif dry_run:
        environment = Environment()
        found = {environment.name(key): environment.versions[key] for key in members(environment)}
        if as_json:
            print_json({"file": str(file), "dry_run": True, "distributions": found})
        else:
            print_table({"distribution": list(found), "version": list(found.values())})
            click.echo("Nothing was written (--dry-run).")
    else:
        with working(as_json) as tell:
            entries = lock(places(context, [*remembered(), *where]), wheels_of(context), tell)
            refuse_not_allowed(context, ((entry.name, entry.version) for entry in entries), Environment())
            write_lock(file, entries)
        _report_made_wheels(entries, wheels_of(context))
        if as_json:
            print_json({"file": str(file), "dry_run": False, "distributions": {e.name: e.version for e in entries}})
        else:
            click.echo(f"Wrote {file}: {_pluralize(entries, 'distribution')}.")


@click.command("bundle")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--lock",
    "lock_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Bundle the distributions of this lock file instead of the installed ones.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be bundled.")
@index_options
@json_option
@click.pass_obj
def bundle_command(
    context: PluginContext[Settings],
    *,
    folder: Path,
    lock_file: Path | None,
    dry_run: bool,
    where: list[str],
    as_json: bool,
) -> None:
    """Make the folder DIR with wheels of the host, the plugins and their requirements, and a lock file.

    `plughost install --bundle DIR` installs them on the same platform, without a network. Or use pip:
    `pip install --no-index --find-links DIR --require-hashes -r DIR/plughost.lock`.
    """
    with working(as_json) as tell:
        refuse_changing()
        refuse_filled(folder)
        where = places(context, [*remembered(), *where])
        entries = read_lock(lock_file) if lock_file is not None else lock(where, wheels_of(context), tell)
        refuse_not_allowed(context, ((entry.name, entry.version) for entry in entries), Environment())
    _report_made_wheels(entries, wheels_of(context))
    if not as_json:
        print_table({"distribution": [e.name for e in entries], "version": [e.version or e.url for e in entries]})
    wheels: list[Path] = []
    if not dry_run:
        with working(as_json) as tell:
            wheels = bundle(entries, folder.absolute(), where, wheels_of(context), tell)
    if as_json:
        result = {"folder": str(folder), "dry_run": dry_run, "wheels": [wheel.name for wheel in wheels]}
        print_json({**result, "distributions": {entry.name: entry.version for entry in entries}})
    elif dry_run:
        click.echo("Nothing was written (--dry-run).")
    else:
        size = decimal(sum(wheel.stat().st_size for wheel in wheels))
        click.echo(f"Wrote {folder}: {_pluralize(wheels, 'wheel')}, {size}, and {LOCK_NAME}.")


def _check(file: Path, *, as_json: bool) -> None:
    found = compare(read_lock(file))
    if as_json:
        print_json({"ok": not found, "file": str(file), "differences": found})
    elif found:
        keys = {"distribution": "distribution", "": "what", "locked": "locked", "installed": "installed"}
        print_table({heading: [each[key] for each in found] for heading, key in keys.items()})
    else:
        click.echo(f"The installed distributions match {file}.")
    if found:
        raise SystemExit(1)


def _report_made_wheels(entries: Sequence[Locked], wheels: Path) -> None:
    made = [entry.name for entry in entries if entry.file is not None and entry.file.parent == wheels]
    if made:
        click.echo(
            f"pip finds no files of these, so wheels of them were made in {wheels}: {', '.join(made)}.",
            err=True,
        )


def _pluralize(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"
