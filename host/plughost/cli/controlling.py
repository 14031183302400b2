"""`plughost reload` and `plughost status`: talk to the host that runs on the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from plughost.cli.options import (
    EXIT_PROBLEMS,
    STATE_STYLES,
    config_option,
    console,
    json_option,
    plain_table,
    print_json,
    text,
)
from plughost.control import NotRunning, ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from plughost.settings import Settings


@click.command()
@json_option
@config_option
def reload(settings: Settings, as_json: bool) -> None:
    """Let the running host take up what was installed, removed or set since, without losing a request.

    Exit code 0 when all that is enabled serves, 1 when a plugin does not or a restart is needed.
    """
    report = asked(settings, "reload")
    if as_json:
        print_json(report)
    else:
        show_reload(report, console())
    if not report["ok"]:
        raise SystemExit(EXIT_PROBLEMS)


@click.command()
@json_option
@config_option
def status(settings: Settings, as_json: bool) -> None:
    """Show what the running host is doing: process, generation, plugins, listeners, requests, last reload."""
    state = asked(settings, "status")
    if as_json:
        print_json(state)
    else:
        _show_status(state, console())


def asked(settings: Settings, command: str) -> Mapping[str, Any]:
    """Ask the running host; exit with code 1 where there is none."""
    try:
        answer = ask(settings.data_dir, command)
    except NotRunning as error:
        raise click.ClickException(f"{error} Start one with `plughost serve`.") from None
    if "error" in answer:  # from a host of another version, or one in trouble
        raise click.ClickException(f"The host did not do it: {answer['error']}.")
    return answer


def show_reload(report: Mapping[str, Any], out: Console) -> None:
    """Print what came of a reload."""
    if report["swapped"]:
        out.print(Text(f"Generation {report['generation']} serves, after {report['seconds']['total']:.2f} s.", "bold"))
    else:
        out.print(Text(f"Nothing changed; generation {report['generation']} goes on.", "bold red"))
    table = plain_table()
    table.show_header = False
    for what in ("added", "removed", "changed", "unchanged"):
        if report[what]:
            names = [_timed(name, report["seconds"]) for name in report[what]]
            table.add_row(f"  {what}", text("  ".join(names)))
    for label, reason in report["failed"]:
        table.add_row(Text("  failed", style="bold red"), text(f"{label}\n{reason}"))
    for problem in report["problems"]:
        table.add_row(Text("  problem", style="bold red"), text(problem))
    for reason in report["restart_needed"]:
        table.add_row(Text("  restart needed", style="yellow"), text(reason))
    out.print(table)


def _timed(name: str, seconds: Mapping[str, float]) -> str:
    return f"{name} ({seconds[name]:.2f} s)" if name in seconds else name


def _show_status(state: Mapping[str, Any], out: Console) -> None:
    mode = ", development mode" if state["dev"] else ""
    out.print(Text(f"plughost {state['version']} is {state['phase']}, process {state['pid']}{mode}", style="bold"))
    table = plain_table()
    table.show_header = False
    table.add_row("  generation", text(f"{state['generation']}, up {state['uptime_seconds']:.0f} s"))
    for each in state["listeners"]:
        address = f"[{each['address']}]" if ":" in each["address"] else each["address"]
        in_flight = state["in_flight"].get(each["site"], 0)
        url = f"{each['scheme']}://{address}:{each['port']}"
        table.add_row(f"  {each['site']}", text(f"{url}  by {each['engine']}, {in_flight} in flight on the site"))
    out.print(table)
    out.print()
    table = plain_table()
    table.show_header = False
    for plugin in state["plugins"]:
        told = plugin["reason"] or "; ".join(plugin["trouble"]) or "  ".join(plugin["prefixes"])
        state_text = Text(plugin["state"], style=STATE_STYLES[plugin["state"]])
        table.add_row(text(f"  {plugin['name']}"), text(plugin["version"]), state_text, text(told))
    out.print(table)
    if state["last_reload"] is not None:
        out.print()
        out.print(Text("Last reload:", style="bold"), end=" ")
        show_reload(state["last_reload"], out)
