"""What `plughost serve` tells whoever runs it: a person in sentences, a program in events of the JSON log."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.text import Text

from plughost._cli.options import EXIT_PROBLEMS, console, plain_table, plugins_table, say
from plughost._logging import Bridge, is_text, suppress_events
from plughost._runtime.reports import trouble_of
from plughost._runtime.sites import listeners_of

if TYPE_CHECKING:
    import structlog
    from rich.table import Table

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.registry import Registry
    from plughost._runtime.generation import Generation
    from plughost._runtime.host import Host
    from plughost._settings.models import LogSettings


class Teller:
    """Tells what becomes of a host. Where the log is JSON, nothing else is written to standard error."""

    def __init__(self, logger: structlog.stdlib.BoundLogger, settings: LogSettings) -> None:
        self._logger = logger
        self._in_sentences = is_text(settings, sys.stderr)

    def catch_all(self) -> None:
        """Log what libraries log, and what nobody catches, which Python would write to standard error by itself."""
        logging.basicConfig(handlers=[Bridge(self._logger)], level=logging.WARNING, force=True)
        logging.captureWarnings(True)
        sys.excepthook = lambda kind, error, trace: self._log_uncaught("an error ended the host", error)
        threading.excepthook = lambda args: self._log_uncaught("an error ended a thread", args.exc_value)
        sys.unraisablehook = lambda args: self._log_uncaught("an error was ignored", args.exc_value)

    def tell(self, event: str, sentence: str, **fields: Any) -> None:
        """Tell of something in a sentence, or as an event with fields."""
        if not self._in_sentences:
            self._logger.info(event, **fields)
            return
        with suppress(OSError):  # nobody reads any more, and what is in flight is answered nevertheless
            say(sentence, err=True)

    def fail(self, event: str, reason: str, registry: Registry | None = None) -> NoReturn:
        """End with exit code 1, and tell why. A person is shown the plugins, too, where these are given."""
        if not self._in_sentences:
            self._logger.critical(event, reason=reason)
            raise SystemExit(EXIT_PROBLEMS)
        if registry is not None:
            console(stderr=True).print(_plugins(registry))
        raise click.ClickException(reason)

    def showing(self) -> AbstractContextManager[None]:
        """Return what leaves out of the log, during a start, what the table of plugins on a terminal says."""
        shows = self._in_sentences and sys.stdout.isatty() and sys.stderr.isatty()
        return suppress_events("plugin does not serve") if shows else nullcontext()

    def started(self, host: Host) -> None:
        """Tell what is served where: on a terminal all of it, else in the log."""
        generation = host.generation
        assert generation is not None, "the host has started"
        lines = [*generation.announcements()]
        told = generation.warnings
        if host.tls is not None:
            lines.append(f"Certificate: {host.tls.certificate}")
            told = (*host.tls.warnings, *told)
        warnings = [f"Warning: {warning}" for warning in told]
        on_terminal = sys.stdout.isatty()
        if on_terminal:
            _show_start(host, generation, [*lines, *warnings])
        if on_terminal and self._in_sentences:
            return
        urls = [str(replace(listener, port=port)) for listener, port in host.view.listeners.items()]
        self._logger.info("started", version=metadata.version("plughost"), listeners=urls, dev=host.dev)
        if not on_terminal:
            for line in lines:
                self._logger.info("announcement", text=line)
            for line in warnings:
                self._logger.warning("announcement", text=line)

    def reloaded(self, report: ReloadReport) -> None:
        """Tell a person of a reload that nobody asked for. A program finds it in the log."""
        changed = (report.added, report.changed, report.disabled, report.removed, report.certificate)
        if self._in_sentences and (any(changed) or not report.ok):
            with suppress(OSError):  # nobody reads any more
                console(stderr=True).print(report)

    def ended(self, host: Host, *, answered: bool) -> None:
        """End with exit code 1 where the host did not end well, and tell why."""
        if not self._in_sentences:
            self._logger.info("stopped", answered=answered)
        trouble = trouble_of(host.active)
        for label, reason in trouble:
            self.tell("trouble", f"{label}: {reason}", plugin=label, reason=reason)
        if not answered:
            waited = f"{host.drain_seconds:.1f} s (the setting grace_time is {host.settings.host.grace_time:g} s)"
            self.fail("cut off", f"Requests were cut off after {waited}.")
        if trouble:
            raise SystemExit(EXIT_PROBLEMS)

    def _log_uncaught(self, event: str, error: BaseException | None) -> None:
        if not isinstance(error, SystemExit):
            self._logger.critical(event, exc_info=error)


def _show_start(host: Host, generation: Generation, lines: list[str]) -> None:
    """Print what is served where, what became of each plugin, and how to stop."""
    out = console()
    mode = " in development mode" if host.dev else ""
    out.print(Text(f"plughost {metadata.version('plughost')}{mode}", style="bold"))
    out.print()
    table = plain_table()
    for site in generation.sites:
        urls = [str(replace(each, port=host.ports[site, each.scheme])) for each in listeners_of(site, host.settings)]
        table.add_row(f"  {site}", *urls)
    if not generation.sites:
        out.print("  No plugin mounts a route, so no port is open. Install one: plughost install catalog-v2 -f FOLDER")
    out.print(table)
    out.print()
    out.print(_plugins(generation.registry))
    out.print()
    for line in (*lines, "Press Ctrl+C to stop."):
        say(f"  {line}")


def _plugins(registry: Registry) -> Table:
    rows = []
    for entry in sorted(registry, key=lambda each: each.name):
        told = str(entry.failure or "  ".join(group.prefix for group in entry.declared.groups))
        rows.append((entry.name, entry.installed.version, entry.state, told))
    return plugins_table(rows)
