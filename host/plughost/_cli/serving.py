"""`plughost serve` and `plughost check`: run the host, or do all but that."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Final, TextIO

import click
from rich.text import Text

from plughost._api.errors import CertificateError
from plughost._api.events import Events
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
from plughost._logging import Bridge, make_logger, silent_logger
from plughost._plugins.discovery import HOST
from plughost._plugins.environment import Environment
from plughost._plugins.files import altered_files
from plughost._runtime.audit import audit_of
from plughost._runtime.control import AlreadyRunning, Control
from plughost._runtime.host import Host
from plughost._runtime.readiness import Phase
from plughost._runtime.refusals import GenerationRefused
from plughost._runtime.reports import trouble_of
from plughost._runtime.restart import Predecessor, Restart
from plughost._runtime.sites import listeners_of
from plughost._runtime.sockets import Sockets, inherit
from plughost._runtime.status import status_of
from plughost._runtime.systemd import notify
from plughost._servers import ListenError
from plughost._tls.certificates import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FrameType

    from rich.console import Console

    from plughost._plugins.registry import Registry
    from plughost._runtime.control import Response
    from plughost._settings.sources import Settings

_COMMAND_LINE: Final = {"where": "command line"}


@click.command()
@host_options
@config_option
def serve(settings: Settings, dev: bool, without: Collection[str], strict: bool) -> None:
    """Serve every installed plugin until SIGTERM or Ctrl+C.

    Requests in flight are answered before the host stops; a second Ctrl+C ends it at once.
    """
    lines = Events()
    logger = make_logger(settings.host.log, lines=lines)
    logging.basicConfig(handlers=[Bridge(logger)], level=logging.WARNING, force=True)
    inherited = inherit()
    sockets, predecessor = Sockets(inherited.sockets), Predecessor(inherited)
    host = Host(settings, dev=dev, without=without, strict=strict, logger=logger, sockets=sockets, lines=lines)
    commands: dict[str, Callable[..., Response]] = {
        "ping": dict,
        "status": lambda: status_of(host),
        "drain": lambda undo=False: _drain(host, undo=undo),
        "reload": lambda accept=(), by=None: host.reload(accept, origin={"by": by, **_COMMAND_LINE}).as_plain(),
        "query": host.view.answer_query,
        "audit": audit_of(settings, logger).take,
    }
    control = Control(settings.data_dir, commands)
    restart = Restart(sockets, control, may=lambda: host.phase is Phase.SERVING, leave=host.ask_to_stop)
    commands["restart"] = restart
    signal.signal(signal.SIGHUP, _hanging_up(host))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _asking(host))
    try:
        control.claim(predecessor.lock)
        host.start()
        control.start()
    except GenerationRefused as error:
        show_plugins(error.registry, console(stderr=True))
        reasons = [f"{entry.installed.label}: {entry.failure}" for entry in error.registry if entry.failure is not None]
        predecessor.tell_failure("\n".join([f"{error}.", *reasons]))
        raise click.ClickException(f"plughost does not start: {error}.") from None
    except (AlreadyRunning, CertificateError, ListenError, OSError) as error:
        predecessor.tell_failure(str(error))
        raise click.ClickException(str(error)) from None
    sockets.settle()
    gc.collect()
    gc.freeze()  # looking through what lives as long as the host would slow small requests by a fiftieth
    show_start(host, console())
    if predecessor.exists:
        predecessor.tell_ready()
    else:
        notify("READY=1")
    host.wait()
    restart.cancel()
    if restart.done:
        _tell(host, "Another process serves now: answering what is in flight here ...")
    else:
        notify("STOPPING=1")
        if delay := host.settings.host.shutdown_delay:
            _tell(
                host,
                f"Readiness is down; all is served for {delay:g} s (setting shutdown_delay), or until another SIGTERM.",
            )
            host.leave()
        _tell(host, "Stopping: answering what is in flight ...")
    answered = host.stop()
    control.stop()
    _leave_to_nobody(sys.stdout, sys.stderr)
    _tell_the_end(host, answered=answered)


@click.command()
@click.option("--files", is_flag=True, help="Compare the installed files with what was installed, too.")
@json_option
@host_options
@config_option
def check(*, settings: Settings, dev: bool, without: Collection[str], strict: bool, files: bool, as_json: bool) -> None:
    """Do everything but serve, and say what is wrong.

    Exit code 0 when every plugin that is not disabled would serve, 1 when one would not, or the host as a whole.
    """
    host = Host(settings, dev=dev, without=without, strict=strict, logger=silent_logger())
    problems: list[str] = []
    warnings: tuple[str, ...] = ()
    try:
        generation = host.build(look_only=True)
    except GenerationRefused as error:
        registry = error.registry
        problems.append(str(error))
    else:
        registry, warnings = generation.registry, generation.warnings
        problems += _certificate_problems(settings, generation.sites.keys(), dev=dev)
        generation.close()
    problems += [f"{entry.installed.label} is {entry.state}: {entry.failure}" for entry in registry if entry.failure]
    if files:
        environment = Environment()
        problems += altered_files(environment, environment.closure([HOST, *environment.owners.values()]))
    if as_json:
        print_json({"ok": not problems, "problems": problems, "warnings": list(warnings)})
    else:
        for problem in problems:
            click.echo(f"problem: {problem}")
        for warning in warnings:
            click.echo(f"warning: {warning}")
        active = len(registry.active())
        click.echo(
            f"Not ready to serve: see above. {active} of {len(registry.entries)} plugins are well."
            if problems
            else f"{active} plugins, all well."
        )
    if problems:
        raise SystemExit(EXIT_PROBLEMS)


def show_start(host: Host, out: Console) -> None:
    """Print what is served where, what became of each plugin, and how to stop."""
    generation = host.generation
    assert generation is not None, "the host has started"
    mode = " in development mode" if host.dev else ""
    out.print(Text(f"plughost {metadata.version('plughost')}{mode}", style="bold"))
    out.print()
    table = plain_table()
    table.show_header = False
    for site in generation.sites:
        urls = [str(replace(each, port=host.ports[site, each.scheme])) for each in listeners_of(site, host.settings)]
        table.add_row(f"  {site}", *urls)
    if not generation.sites:
        out.print("  No plugin mounts a route, so no port is open. Install one: plughost install catalog-v2 -f FOLDER")
    out.print(table)
    out.print()
    show_plugins(generation.registry, out)
    lines = [*generation.announcements()]
    if host.tls is not None:
        lines += [*host.tls.warnings, f"Certificate: {host.tls.certificate}"]
    lines += [f"Warning: {warning}" for warning in generation.warnings]
    out.print()
    for line in (*lines, "Press Ctrl+C to stop."):
        out.print(text(f"  {line}"), soft_wrap=True)
    _log_start(host)


def show_plugins(registry: Registry, out: Console) -> None:
    """Print each plugin with its state, and where it is mounted or why it is not."""
    table = plain_table()
    table.show_header = False
    for entry in sorted(registry, key=lambda each: each.name):
        if entry.failure is not None:
            told = f"{entry.failure}"
        else:
            told = "  ".join(group.prefix for group in entry.declared.groups)
        table.add_row(
            text(f"  {entry.name}"),
            text(entry.installed.version),
            Text(entry.state, style=STATE_STYLES[entry.state]),
            text(told),
        )
    out.print(table)


def _drain(host: Host, *, undo: bool) -> Response:
    host.drain(undo=undo)
    return {"phase": host.phase.value, "unready": host.unready}


def _tell_the_end(host: Host, *, answered: bool) -> None:
    """End with exit code 1 where the host did not end well, and say why."""
    if not sys.stderr.isatty():
        host.logger.info("stopped", answered=answered)
    trouble = trouble_of(host.generation.registry.active()) if host.generation is not None else ()
    for label, reason in trouble:
        _tell(host, f"{label}: {reason}")
    if not answered:
        grace = host.settings.host.grace_time
        raise click.ClickException(
            f"Requests were cut off after {host.drain_seconds:.1f} s (the setting grace_time is {grace:g} s)."
        )
    if trouble:
        raise SystemExit(EXIT_PROBLEMS)


def _log_start(host: Host) -> None:
    """Log what is served where; a terminal has just been shown it."""
    if not sys.stderr.isatty():
        urls = [str(replace(listener, port=port)) for listener, port in host.view.listeners.items()]
        host.logger.info("started", version=metadata.version("plughost"), listeners=urls, dev=host.dev)


def _tell(host: Host, line: str) -> None:
    """Tell a person, or the log where nobody watches: programs read it, line by line."""
    if not sys.stderr.isatty():
        host.logger.info(line)
        return
    with suppress(OSError):  # nobody reads any more, and what is in flight is answered nevertheless
        click.echo(line, err=True)


def _leave_to_nobody(*streams: TextIO) -> None:
    """Point streams that nobody reads at the null device, or Python's last flush would end a good run with code 120."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _hanging_up(host: Host) -> Callable[[int, FrameType | None], None]:
    terminal = os.isatty(0)

    def handle(number: int, frame: FrameType | None) -> None:
        if terminal and not os.isatty(0):  # the terminal was closed: nobody asks for a reload
            host.ask_to_stop()
        else:
            threading.Thread(target=partial(host.reload, origin={"where": "signal"}), name="reload").start()

    return handle


def _asking(host: Host) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        host.ask_to_stop()

    return handle


def _certificate_problems(settings: Settings, sites: Collection[str], *, dev: bool) -> list[str]:
    listeners = [listener for site in sites for listener in listeners_of(site, settings)]
    if not any(listener.scheme == "https" for listener in listeners):
        return []
    try:
        prepare(settings, dev=dev)
    except CertificateError as error:
        return [str(error)]
    return []
