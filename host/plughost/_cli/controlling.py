"""`plughost status`, `reload`, `restart` and `drain`: commands to the host that runs on the data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from plughost._api.errors import NotRunning
from plughost._api.reload_report import ReloadReport
from plughost._cli.options import (
    EXIT_PROBLEMS,
    config_option,
    console,
    data_dir_option,
    format_days_left,
    format_duration,
    json_option,
    plain_table,
    plugins_table,
    print_json,
    say,
)
from plughost._runtime.control import NotPermitted, send_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

    from plughost._settings.sources import Settings


_AFTER_UPGRADE: Final = "If plughost was upgraded since the host started, run: plughost restart"
_HOW_TO_START: Final = "Start one with `plughost serve`. If one runs, use its folder or --config."


@click.command()
@json_option
@config_option
def reload(settings: Settings, as_json: bool) -> None:
    """Apply changed plugins and settings to the running host, without losing a request.

    Exit code 0 if every enabled plugin serves without trouble, 1 if one does not, a certificate was refused, or a
    restart is needed.
    """
    report = _send(settings.data_dir, "reload")
    if as_json:
        print_json(report)
    else:
        console().print(ReloadReport.from_plain(report))
    if not report["ok"]:
        raise SystemExit(EXIT_PROBLEMS)


@click.command()
@json_option
@config_option
def restart(settings: Settings, as_json: bool) -> None:
    """Replace the running host by a new process, which takes over its listening sockets.

    The new process has the same command line. The old process serves until the new one does, then finishes its
    requests and exits. If the new process can't serve, the old one continues. Data that plugins hold only in memory is
    lost. Exit code 0 if the new process serves, else 1. Plugins that don't serve are listed.
    """
    answer = _send(settings.data_dir, "restart")
    if as_json:
        print_json(answer)
    elif answer["ok"]:
        say(f"Process {answer['pid']} serves, after {answer['seconds']:.2f} s.")
        for plugin in _send(settings.data_dir, "status")["plugins"]:
            if plugin["reason"]:
                say(f"{plugin['name']} is {plugin['state']}: {plugin['reason']}", err=True)
    elif answer.get("stopping"):
        say("Error: Not restarted: the host is stopping.", err=True)
    else:
        say(f"Error: Not restarted. The old process continues to serve: {answer['reason']}", err=True)
    if not answer["ok"]:
        raise SystemExit(EXIT_PROBLEMS)


@click.command()
@click.option("--undo", is_flag=True, help="Report the host as ready again.")
@json_option
@data_dir_option
def drain(data_dir: Path, undo: bool, as_json: bool) -> None:
    """Report the running host as not ready, so that load balancers send it no more requests.

    The host still serves all requests. It stays not ready until `plughost drain --undo`, or until the process ends.
    Exit code 1 if --undo has no effect because the host is stopping.
    """
    state = _send(data_dir, "drain", undo=undo)
    if as_json:
        print_json(state)
    elif state["unready"] is None:
        say("Readiness is up.")
    else:
        say(f"Readiness is down: {state['unready']}.")
    if undo and state["unready"] is not None:
        raise SystemExit(EXIT_PROBLEMS)


@click.command()
@json_option
@data_dir_option
def status(data_dir: Path, as_json: bool) -> None:
    """Show the state of the running host: process, generation, plugins, listeners, requests, last reload.

    The command needs only the setting `data_dir`, and works even if other settings are invalid.
    """
    state = _send(data_dir, "status")
    if as_json:
        print_json(state)
        return
    try:
        _show_status(state, console())
    except KeyError as error:
        raise click.ClickException(f"The host's status has no {error}. {_AFTER_UPGRADE}") from None


def _send(data_dir: Path, command: str, **arguments: Any) -> Mapping[str, Any]:
    """Send a command to the running host and return its answer. Exit with code 1 if no host runs."""
    try:
        answer = send_command(data_dir, command, **arguments)
    except NotRunning as error:
        raise click.ClickException(
            str(error) if isinstance(error, NotPermitted) else f"{error} {_HOW_TO_START}"
        ) from None
    if "error" in answer:  # a host of another version, or an internal error
        raise click.ClickException(f"The host did not execute the command: {answer['error']}. {_AFTER_UPGRADE}")
    return answer


def _show_status(state: Mapping[str, Any], out: Console) -> None:
    mode = ", development mode" if state["dev"] else ""
    out.print(Text(f"plughost {state['version']} is {state['phase']}, process {state['pid']}{mode}", style="bold"))
    table = plain_table()
    table.add_row("  generation", f"{state['generation']}, up {format_duration(state['uptime_seconds'])}")
    if state["unready"] is not None:
        table.add_row(Text("  readiness", style="yellow"), f"down: {state['unready']}")
    for each in state["listeners"]:
        address = f"[{each['address']}]" if ":" in each["address"] else each["address"]
        in_flight = state["in_flight"].get(each["site"], 0)
        url = f"{each['scheme']}://{address}:{each['port']}"
        table.add_row(f"  {each['site']}", f"{url}  by {each['engine']}, {in_flight} in flight on the site")
    certificate = state.get("certificate")
    if certificate is not None:
        validity = f"until {certificate['not_after'][:10]}, {format_days_left(certificate['days_left'])}"
        if certificate["on_disk"] != "the same":
            validity += f"; on disk: {certificate['on_disk']}; run plughost reload"
        table.add_row("  certificate", validity)
    out.print(table)
    out.print()
    rows = []
    for each in state["plugins"]:
        detail = each["reason"] or "; ".join(each["trouble"]) or "  ".join(each["prefixes"])
        rows.append((each["name"], each["version"], each["state"], detail))
    out.print(plugins_table(rows))
    if state["last_reload"] is not None:
        out.print()
        out.print(Text("Last reload:", style="bold"))
        out.print(ReloadReport.from_plain(state["last_reload"]))
