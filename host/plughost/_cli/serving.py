"""`plughost serve` and `plughost check`: run the host, or do everything except serving."""

from __future__ import annotations

import gc
import os
import signal
import threading
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from plughost._api.bounded import Interrupted
from plughost._api.errors import CertificateError
from plughost._cli.ending import INTERRUPT, drop_unread, limit_exit
from plughost._cli.options import (
    EXIT_PROBLEMS,
    config_option,
    host_options,
    json_option,
    pluralize,
    preview_generation,
    print_json,
    say,
    strict_option,
)
from plughost._cli.plugin_commands import command_failures
from plughost._cli.reporting import Reporter
from plughost._logging import make_logger
from plughost._plugins.discovery import wait_for_change
from plughost._plugins.environment import HOST, Environment
from plughost._plugins.integrity import altered_files
from plughost._plugins.registry import State
from plughost._runtime.control import AlreadyRunning, Control, data_dir_problem
from plughost._runtime.generation import GenerationRefused, start_problems
from plughost._runtime.host import Host
from plughost._runtime.lines import Lines
from plughost._runtime.restart import Predecessor, Restart, notify
from plughost._runtime.sites import client_authorities, has_https, listeners_of
from plughost._runtime.sockets import Sockets, inherit
from plughost._runtime.source_watcher import SourceWatcher
from plughost._runtime.view import status_of
from plughost._servers import ListenError
from plughost._tls.certificates import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import FrameType

    from plughost._runtime.control import Response
    from plughost._settings.sources import Settings

_ORIGIN: Final = {"where": "command line"}


@click.command()
@click.option("--reload", "watch", is_flag=True, help="With --dev: reload plugins when their source files change.")
@host_options
@strict_option()
@config_option
def serve(*, settings: Settings, dev: bool, without: Collection[str], strict: bool, watch: bool) -> None:
    """Serve every installed plugin until SIGTERM or Ctrl+C.

    Requests in flight are answered before the host stops; a second Ctrl+C ends it at once.
    """
    if watch and not dev:
        raise click.UsageError("--reload needs --dev. To reload a host without --dev, run `plughost reload`.")
    lines = Lines()
    logger = make_logger(settings.host.log, lines=lines)
    reporter = Reporter(logger, settings.host.log)
    reporter.catch_all()
    limit_exit(settings.host.hook_timeout, lambda reason: reporter.report("cut off", reason, reason=reason))
    listening, others = inherit()
    sockets, predecessor = Sockets(listening), Predecessor(others)
    host = Host(settings, dev=dev, without=without, strict=strict, logger=logger, sockets=sockets, lines=lines)
    commands: dict[str, Callable[..., Response]] = {
        "status": lambda: status_of(host),
        "drain": lambda undo=False: _drain(host, undo=undo),
        "reload": lambda accept=(), by=None: host.reload(accept, origin={"by": by, **_ORIGIN}).as_plain(),
        "query": host.view.answer_query,
        "audit": host.audit.write_command_event,
    }
    control = Control(settings.data_dir, commands)
    restart = Restart(
        sockets,
        control,
        is_stopping=host.lifecycle.is_stopping,
        served=lambda: (host.generation.number, host.last_reload),
        stop=partial(_request_stop, host),
    )
    commands["restart"] = restart
    signal.signal(INTERRUPT, lambda *_: None)
    signal.signal(signal.SIGHUP, partial(_on_hangup, host, os.isatty(0)))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_on_stop_signal, host))
    os.register_at_fork(after_in_child=partial(_leave_host, control))
    watching = SourceWatcher(host, reporter.report_reload) if watch else nullcontext()
    _start(host, control, predecessor, reporter)
    sockets.take_ownership()
    for unused in sockets.unused():
        logger.warning(
            f"no listener uses the socket {unused} of systemd, so whoever connects there waits: a listener takes one "
            "socket, which has its name, such as main-http, or its port"
        )
    gc.collect()
    gc.freeze()  # collecting objects that live as long as the host would slow small requests by 2 %
    reporter.report_start(host)
    with watching:
        if predecessor.exists:
            predecessor.report(pid=os.getpid())
        else:
            notify("READY=1")
        host.lifecycle.stop_requests.wait(1)
    _stop(host, control, restart, reporter)


def _start(host: Host, control: Control, predecessor: Predecessor, reporter: Reporter) -> None:
    wait_for_change(host.lifecycle.is_stopping, to_end=True)
    try:
        control.claim(predecessor.lock)
        if not predecessor.exists:  # a predecessor answers commands until this process serves
            control.listen()
        with reporter.without_shown_failures():
            host.start()
        control.start()
    except GenerationRefused as error:
        control.stop()
        reasons = [f"{entry.installed.label}: {entry.failure}" for entry in error.registry if entry.failure is not None]
        sentence = f"{error}." if not str(error).endswith("?") else str(error)
        predecessor.report(reason="\n".join([sentence, *reasons]))
        reporter.fail("refused to start", f"plughost does not start: {sentence}", error.registry)
    except Interrupted as error:
        control.stop()
        predecessor.report(reason=str(error))
        reporter.report("stopped", "Stopped before it served, as it was asked to.", answered=True)
        raise SystemExit(0) from None
    except (AlreadyRunning, CertificateError, ListenError, OSError) as error:
        if host.lifecycle.is_serving:  # it can't take commands
            host.stop()
        control.stop()
        predecessor.report(reason=str(error))
        reporter.fail("refused to start", str(error))


def _stop(host: Host, control: Control, restart: Restart, reporter: Reporter) -> None:
    """Finish the requests in flight, of a host that another process replaces or that ends."""
    restart.cancel()
    if restart.done:
        host.lifecycle.handed_over = True
        reporter.report("stopping", "Another process serves now: finishing the requests in flight ...", replaced=True)
    else:
        notify("STOPPING=1")
        if delay := host.settings.host.shutdown_delay:
            after = f"for {delay:g} s (setting shutdown_delay), or until another SIGTERM"
            reporter.report("leaving", f"Readiness is down. Requests are still served {after}.", seconds=delay)
            host.lifecycle.delay_stop(host.settings.host.shutdown_delay)
        reporter.report("stopping", "Stopping: finishing the requests in flight ...", replaced=False)
    answered = host.stop()
    restart.end()  # first, so that the command is answered
    control.stop()
    reporter.report_end(host, answered=answered)


@click.command()
@click.option("--files", is_flag=True, help="Also compare the installed files with their recorded hashes.")
@json_option
@host_options
@strict_option(expose_value=False)  # any failure is a problem, with or without it
@config_option
def check(settings: Settings, *, dev: bool, without: Collection[str], files: bool, as_json: bool) -> None:
    """Check whether the host and every enabled plugin would serve.

    Exit code 0 if they would, else 1. Warnings don't count.
    """
    generation = preview_generation(settings, without, dev=dev, rehearsed=True)
    registry, untried, problems = generation.registry, len(generation.stores.doubts), start_problems(generation)
    warnings = generation.warnings
    try:
        tls = prepare(settings, dev=dev) if has_https(generation.sites, settings) else None
        warnings += tls.warnings if tls else ()
        for listener in (each for site in generation.sites for each in listeners_of(site, settings)):
            client_authorities(listener, settings)
    except CertificateError as error:
        problems.append(str(error))
    if (why := data_dir_problem(settings.data_dir)) is not None:
        problems.append(why)
    warnings += tuple(f"the commands of {label}: {failure}" for label, failure in command_failures(registry, registry))
    problems += [f"{entry.installed.label} is {entry.state}: {entry.failure}" for entry in registry if entry.failure]
    if files:
        environment = Environment()
        problems += altered_files(environment, environment.closure([HOST, *environment.owners.values()]))
    if as_json:
        print_json({"ok": not problems, "problems": problems, "warnings": list(warnings)})
    else:
        for problem in problems:
            say(f"problem: {problem}")
        for warning in warnings:
            say(f"warning: {warning}")
        active, enabled = len(registry.active()), [each for each in registry if each.state is not State.DISABLED]
        but = f"; {pluralize(untried, 'store')} could not be tried" if untried else ""
        say(
            f"Not ready to serve: see above. Plugins without problems: {active} of {len(enabled)}."
            if problems
            else f"{pluralize(active, 'plugin')}, all well{but}."
        )
    if problems:
        raise SystemExit(EXIT_PROBLEMS)


def _drain(host: Host, *, undo: bool) -> Response:
    host.lifecycle.drain(undo=undo)
    return {"phase": host.lifecycle.phase.value, "unready": host.lifecycle.unready}


def _on_hangup(host: Host, terminal: bool, number: int, frame: FrameType | None) -> None:
    if terminal and not os.isatty(0):  # the terminal was closed, which is not a request to reload
        _request_stop(host)
    else:
        reload = threading.Thread(target=partial(host.reload, origin={"where": "signal"}), name="reload", daemon=True)
        try:
            reload.start()
        except RuntimeError:
            host.logger.error("not reloaded", reason="the system allows this process no further thread")


def _leave_host(control: Control) -> None:
    """Let a child that a plugin forks end by signals, as `multiprocessing` expects, and hold no lock of the host."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if control.lock != -1:
        os.close(control.lock)  # the parent's stays locked


def _on_stop_signal(host: Host, number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _request_stop(host)


def _request_stop(host: Host) -> None:
    """Stop the host, even if nobody reads its log. Safe in a signal handler."""
    drop_unread()
    host.lifecycle.stop_requests.add()
