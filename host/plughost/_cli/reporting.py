"""Reports of `plughost serve`: sentences for a person, events of the JSON log for a program."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.text import Text

from plughost._cli.options import EXIT_PROBLEMS, console, plain_table, plugins_table, say
from plughost._logging import Bridge, is_text, suppress_events
from plughost._runtime.generation import trouble_of
from plughost._runtime.sites import listeners_of

if TYPE_CHECKING:
    import structlog
    from rich.table import Table

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.registry import Registry
    from plughost._runtime.generation import Generation
    from plughost._runtime.host import Host
    from plughost._settings.models import LogSettings


class Reporter:
    """Reports the life of a host. If the log is JSON, nothing else is written to standard error."""

    def __init__(self, logger: structlog.stdlib.BoundLogger, settings: LogSettings) -> None:
        self._logger = logger
        self._is_text = is_text(settings, sys.stderr)
        self._is_debug = settings.level == "debug"

    def catch_all(self) -> None:
        """Log the records of libraries and uncaught errors, which Python would write to standard error."""
        logging.basicConfig(handlers=[Bridge(self._logger)], level=logging.WARNING, force=True)
        if self._is_debug:
            logging.getLogger("_granian").setLevel(logging.DEBUG)  # it alone can tell why a TLS handshake failed
        logging.captureWarnings(True)
        sys.excepthook = lambda kind, error, trace: self._log_uncaught("an error ended the host", error)
        threading.excepthook = lambda args: self._log_uncaught("an error ended a thread", args.exc_value)
        sys.unraisablehook = lambda args: self._log_uncaught("an error was ignored", args.exc_value)

    def report(self, event: str, sentence: str, **fields: Any) -> None:
        """Print a sentence, or log an event with fields."""
        if not self._is_text:
            self._logger.info(event, **fields)
            return
        with suppress(OSError):  # nobody reads any more; requests in flight must still be served
            say(sentence, err=True)

    def fail(self, event: str, reason: str, registry: Registry | None = None) -> NoReturn:
        """Report why, and exit with code 1. A person also sees the table of plugins, if a registry is given."""
        if not self._is_text:
            self._logger.critical(event, reason=reason)
            raise SystemExit(EXIT_PROBLEMS)
        if registry is not None:
            console(stderr=True).print(_plugins_table(registry))
        raise click.ClickException(reason)

    def without_shown_failures(self) -> AbstractContextManager[None]:
        """Return a context in which the log omits failures that the table of plugins on a terminal shows."""
        shows = self._is_text and sys.stdout.isatty() and sys.stderr.isatty()
        return suppress_events("plugin does not serve") if shows else nullcontext()

    def report_start(self, host: Host) -> None:
        """Report what is served where, on a terminal or in the log."""
        generation = host.generation
        lines = [*generation.announcements()]
        warnings = [f"Warning: {warning}" for warning in generation.warnings]
        if host.tls is not None:
            lines.append(f"Certificate: {host.tls.certificate}")
            warnings = [*(f"Warning: {warning}" for warning in host.tls.warnings), *warnings]
        on_terminal = sys.stdout.isatty()
        if on_terminal:
            _show_start(host, generation, [*lines, *warnings])
        if on_terminal and self._is_text:
            return
        urls = [str(replace(listener, port=port)) for listener, port in host.view.listeners.items()]
        self._logger.info("started", version=host.version, listeners=urls, dev=host.dev)
        if not on_terminal:
            for line in lines:
                self._logger.info("announcement", text=line)
            for line in warnings:
                self._logger.warning("announcement", text=line)

    def report_reload(self, report: ReloadReport) -> None:
        """Show a person the result of an automatic reload. A program finds it in the log."""
        changed = (report.added, report.changed, report.disabled, report.removed, report.certificate)
        if self._is_text and (any(changed) or not report.ok):
            with suppress(OSError):  # nobody reads any more
                console(stderr=True).print(report)

    def report_end(self, host: Host, *, answered: bool) -> None:
        """Report the end. Exit with code 1 if requests were cut off or plugins have problems."""
        if not self._is_text:
            self._logger.info("stopped", answered=answered)
        problems = trouble_of(host.active)
        for label, reason in problems:
            self.report("trouble", f"{label}: {reason}", plugin=label, reason=reason)
        if not answered:
            waited = f"{host.drain_seconds:.1f} s (the setting grace_time is {host.settings.host.grace_time:g} s)"
            self.fail("cut off", f"Requests were cut off after {waited}.")
        if problems:
            raise SystemExit(EXIT_PROBLEMS)

    def _log_uncaught(self, event: str, error: BaseException | None) -> None:
        if not isinstance(error, SystemExit):
            self._logger.critical(event, exc_info=error)


def _show_start(host: Host, generation: Generation, lines: list[str]) -> None:
    out = console()
    mode = " in development mode" if host.dev else ""
    out.print(Text(f"plughost {host.version}{mode}", style="bold"))
    out.print()
    table = plain_table()
    for site in generation.sites:
        urls = [str(replace(each, port=host.ports[site, each.scheme])) for each in listeners_of(site, host.settings)]
        table.add_row(f"  {site}", *urls)
    if not generation.sites:
        out.print("  No plugin mounts a route, so no port is open. Install one: plughost install catalog-v2 -f FOLDER")
    out.print(table)
    out.print()
    out.print(_plugins_table(generation.registry))
    out.print()
    for line in (*lines, "Press Ctrl+C to stop."):
        say(f"  {line}")


def _plugins_table(registry: Registry) -> Table:
    rows = []
    for entry in sorted(registry, key=lambda each: each.name):
        detail = str(entry.failure or "  ".join(group.prefix for group in entry.declared.groups))
        rows.append((entry.name, entry.installed.version, entry.state, detail))
    return plugins_table(rows)
