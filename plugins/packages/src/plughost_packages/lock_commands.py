"""`plughost lock` and `plughost bundle`: save the exact installed set, to install it elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal

from plughost import CommandError, Environment
from plughost_packages.bundling import bundle, refuse_filled
from plughost_packages.commands import (
    EXIT_PROBLEMS,
    index_options,
    json_option,
    print_json,
    print_table,
    readable_errors,
    wheels_of,
    working,
)
from plughost_packages.locking import LOCK_NAME, Locked, compare, lock, members, read_lock, write_lock
from plughost_packages.places import places, remembered

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from plughost import PluginContext
    from plughost_packages.settings import Settings


@click.command("lock")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--check", "check_only", is_flag=True, help="Compare with the file, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be locked, and write nothing.")
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
    """Write the exact set that is installed to FILE: host, plugins, requirements, versions, hashes.

    FILE, by default plughost.lock beside the settings, is a requirements file with hashes for this platform; pip
    installs it with --require-hashes. With --check, exit code 1 and a table where something else is installed.
    """
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
        with readable_errors(), working(as_json) as tell:
            where = places([*remembered(), *where], context.settings, context.host.settings_dir)
            entries = lock(where, wheels_of(context), tell)
            _refuse_not_allowed(entries, context)
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
    help="Bundle the set of this lock file; by default what is installed.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be bundled, and write nothing.")
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
    """Make the folder DIR with wheels of the exact set that is installed, and its lock file.

    `plughost install --bundle DIR` installs it without any network, on the same platform; so does plain pip: `pip
    install --no-index --find-links DIR --require-hashes -r DIR/plughost.lock`.
    """
    with readable_errors(), working(as_json) as tell:
        refuse_filled(folder)
        where = places([*remembered(), *where], context.settings, context.host.settings_dir)
        entries = read_lock(lock_file) if lock_file is not None else lock(where, wheels_of(context), tell)
        _refuse_not_allowed(entries, context)
    _report_made_wheels(entries, wheels_of(context))
    if not as_json:
        print_table({"distribution": [e.name for e in entries], "version": [e.version or e.url for e in entries]})
    wheels: list[Path] = []
    if not dry_run:
        with readable_errors(), working(as_json) as tell:
            wheels = bundle(entries, folder.absolute(), where, wheels_of(context), tell)
    if as_json:
        result = {"folder": str(folder), "dry_run": dry_run, "wheels": [wheel.name for wheel in wheels]}
        print_json({**result, "distributions": {entry.name: entry.version for entry in entries}})
    elif dry_run:
        click.echo("Nothing was written (--dry-run).")
    else:
        size = decimal(sum(wheel.stat().st_size for wheel in wheels))
        click.echo(f"Wrote {folder}: {_pluralize(wheels, 'wheel')}, {size}, and {LOCK_NAME}.")


def _refuse_not_allowed(entries: Sequence[Locked], context: PluginContext[Settings]) -> None:
    """Refuse a set with a version of an installed plugin that the settings don't allow."""
    plugins = set(Environment().owners.values())
    for entry in entries:
        if entry.name in plugins and entry.version is not None:
            why = context.host.why_not_allowed(entry.name, entry.version)
            if why is not None:
                raise CommandError(f"{why}.")


def _check(file: Path, *, as_json: bool) -> None:
    with readable_errors():
        found = compare(read_lock(file))
    if as_json:
        print_json({"ok": not found, "file": str(file), "differences": [asdict(each) for each in found]})
    elif found:
        print_table(
            {
                "distribution": [each.distribution for each in found],
                "": [each.what for each in found],
                "locked": [each.locked for each in found],
                "installed": [each.installed for each in found],
            }
        )
    else:
        click.echo(f"What is installed is what {file} says.")
    if found:
        raise SystemExit(EXIT_PROBLEMS)


def _report_made_wheels(entries: Sequence[Locked], wheels: Path) -> None:
    made = [entry.name for entry in entries if entry.file is not None and entry.file.parent == wheels]
    if made:
        click.echo(
            f"Wheels were made in {wheels} of what is installed, since pip finds these nowhere: {', '.join(made)}.",
            err=True,
        )


def _pluralize(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"
