"""`plughost plugins`, `routes` and `settings`: look at what a host would serve."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from plughost._cli.options import (
    EXIT_PROBLEMS,
    STATE_STYLES,
    config_option,
    console,
    host_options,
    json_option,
    plain_table,
    print_json,
    text,
)
from plughost._logging import silent_logger
from plughost._plugins.environment import Environment
from plughost._runtime.explaining import Explanation, explain
from plughost._runtime.host import Host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from plughost._plugins.registry import Entry
    from plughost._runtime.generation import Generation
    from plughost._settings.sources import Settings

_WIDE: Final = 110
"""Columns that the last column of a table needs to be readable; a narrower terminal is spared it."""


@click.command()
@json_option
@click.option("--why", metavar="NAME", help="Say of one plugin or installed distribution why it serves or does not.")
@host_options
@config_option
def plugins(
    *, settings: Settings, dev: bool, without: Collection[str], strict: bool, why: str | None, as_json: bool
) -> None:
    """List the installed plugins: version, state, where they are mounted, and why one does not serve.

    Exit code 1 when a plugin fails or is blocked, or when the host as a whole can't start.
    """
    generation = _build(settings, without, dev=dev, rehearsed=True)
    if why is not None:
        _explain(explain(why, generation.registry, Environment()), as_json)
        return
    entries = sorted(generation.registry, key=lambda each: each.name)
    if as_json:
        print_json([_plugin(entry) for entry in entries])
    elif not entries:
        click.echo("No plugin is installed. Install one: plughost install catalog-v2 -f FOLDER")
    else:
        names = ("plugin", "distribution", "version", "state", "site")
        out = console()
        wide = out.width >= _WIDE
        table = plain_table(*names, *(["hooks"] if wide else []), whole=names)
        for entry in entries:
            table.add_row(
                text(entry.name),
                text(entry.installed.distribution),
                text(entry.installed.version),
                Text(entry.state, style=STATE_STYLES[entry.state]),
                text(" ".join(_sites(entry))),
                *([text(" ".join(hook.removeprefix("register_") for hook in entry.hooks))] if wide else []),
            )
        out.print(table)
        for entry in entries:
            if entry.failure is not None:
                click.echo(f"\n{entry.installed.label} is {entry.state}.\n  {entry.failure}")
    if not as_json:
        for told in (*(f"problem: {each}" for each in generation.problems), *_warnings(generation)):
            click.echo(f"\n{told}")
    if generation.problems or any(entry.failure is not None for entry in entries):
        raise SystemExit(EXIT_PROBLEMS)


@click.command()
@json_option
@host_options
@config_option
def routes(settings: Settings, dev: bool, without: Collection[str], strict: bool, as_json: bool) -> None:
    """List every route: site, methods, path, the plugin that mounts it, and the minor versions it speaks."""
    rows = list(_routes(_build(settings, without, dev=dev)))
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("No route is mounted.")
    else:
        out = console()
        wide = out.width >= _WIDE
        names = ("site", "methods", "path", "plugin", "versions")
        table = plain_table(*names, *(["does"] if wide else []), whole=names[:-1])
        for row in rows:
            told = row["operations"] if wide else {" ".join(row["operations"]): ""}
            for method, summary in told.items():
                table.add_row(
                    text(row["site"]),
                    text(method),
                    text(row["path"]),
                    text(row["plugin"]),
                    text(" ".join(row["versions"])),
                    *([text(summary)] if wide else []),
                )
        out.print(table)


@click.command("settings")
@json_option
@host_options
@config_option
def settings(settings: Settings, dev: bool, without: Collection[str], strict: bool, as_json: bool) -> None:
    """Show every setting in force with its default and its source; secrets are masked."""
    generation = _build(settings, without, dev=dev)
    models = {entry.name: entry.settings for entry in generation.registry if entry.settings is not None}
    values = list(settings.values(models))
    if as_json:
        print_json([{"key": v.key, "value": v.value, "default": v.default, "source": v.source} for v in values])
        return
    table = plain_table("key", "value", "default", "source")
    for value in values:
        changed = value.source != "default"
        table.add_row(
            Text(value.key, style="bold" if changed else ""),
            text(_toml(value.value)),
            text(_toml(value.default) if changed else ""),
            Text(value.source, style="" if changed else "dim"),
        )
    console().print(table)
    for told in _warnings(generation):
        click.echo(told, err=True)


def _warnings(generation: Generation) -> list[str]:
    return [f"warning: {each}" for each in generation.warnings]


def _build(settings: Settings, without: Collection[str], *, dev: bool, rehearsed: bool = False) -> Generation:
    generation = Host(settings, dev=dev, without=without, logger=silent_logger()).look(rehearsed=rehearsed)
    generation.close()
    return generation


def _explain(told: Explanation, as_json: bool) -> None:
    if as_json:
        print_json(asdict(told))
    else:
        click.echo("\n".join(told.lines))
    if not told.serves:
        raise SystemExit(EXIT_PROBLEMS)


def _sites(entry: Entry) -> list[str]:
    return sorted({entry.mount.site or group.site for group in entry.declared.groups})


def _plugin(entry: Entry) -> dict[str, Any]:
    failure = entry.failure
    return {
        "name": entry.name,
        "distribution": entry.installed.distribution,
        "version": entry.installed.version,
        "state": entry.state.value,
        "reason": None if failure is None else str(failure),
        "stage": None if failure is None else failure.stage,
        "hooks": list(entry.hooks),
        "sites": _sites(entry),
        "prefixes": [group.prefix for group in entry.declared.groups],
        "requires": list(entry.installed.requires),
    }


def _routes(generation: Generation) -> Iterator[dict[str, Any]]:
    for site, assembly in generation.sites.items():
        for mounted in assembly.groups:
            for route in mounted.group.routes:
                yield {
                    "site": site,
                    "path": mounted.group.prefix + route.path,
                    "plugin": mounted.fallback.plugin,
                    "versions": list(mounted.group.versions),
                    "operations": {method: each.summary for method, each in route.operations.items()},
                }


def _toml(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
