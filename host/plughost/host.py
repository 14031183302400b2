"""The host: builds a generation, serves it, swaps in the next one, and stops without losing a request."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from plughost.answered import AnsweredRequests
from plughost.carrying import carry_over, forget_removed, imported_parts, restart_reasons
from plughost.certificates import PreparedTLS, prepare
from plughost.discovery import Survey
from plughost.events import Events
from plughost.generation import Generation, Refusal, build, refuse_incomplete
from plughost.logs import make_logger, silent_logger
from plughost.memory import give_back
from plughost.reports import ReloadReport, report_of, report_of_nothing
from plughost.serving import Serving
from plughost.settings import Settings, SettingsError
from plughost.view import HostView

if TYPE_CHECKING:
    from importlib import metadata

    import structlog

    from plughost.changes import Forgotten, Part
    from plughost.http.site import Assembly, Site
    from plughost.roster import Roster
    from plughost.sockets import Sockets


class Phase(enum.StrEnum):
    """Where a host is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


class Host:
    """A host of plugins in this process; several may live side by side.

    Attributes:
        settings: The settings that it runs with.
        dev: Whether it runs with `--dev`.
        logger: Its logger.
        events: What happens on it, for plugins that watch.
        lines: The lines of its log, as they are written, for plugins that watch.
        answered: The requests that it answered, on their way to the plugins that observe them.
        view: What its plugins may see of it.
        phase: Where it is in its life; ready for requests while serving.
        generation: What it serves; None before `start`.
        number: The number of that generation, from 1.
        serving: Its open sites.
        tls: The certificate of its HTTPS listeners; None where none was opened.
        started_at: When it began to serve.
        last_reload: What became of the last reload; None before the first.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        dev: bool = False,
        without: Collection[str] = (),
        strict: bool = False,
        logger: structlog.stdlib.BoundLogger | None = None,
        distributions: Collection[metadata.Distribution] | None = None,
        sockets: Sockets | None = None,
        lines: Events | None = None,
    ) -> None:
        """Prepare a host that does nothing yet.

        Args:
            settings: The settings.
            dev: Development mode: demo users, self-signed certificate, console.
            without: Plugins to skip, beside those that the settings disable.
            strict: Refuse to start when any plugin fails.
            logger: Where it logs; by default as the settings say.
            distributions: What is installed; all that is on `sys.path` by default.
            sockets: Where listening sockets come from; all are opened anew by default.
            lines: What the logger tells of each line; see `make_logger`.
        """
        self.settings = settings
        self.dev = dev
        self.lines = lines if lines is not None else Events()
        self.logger = logger if logger is not None else make_logger(settings.host.log, lines=self.lines)
        self.events = Events()
        self.answered = AnsweredRequests(self.logger)
        self.view = HostView(self)
        self.phase = Phase.STARTING
        self.generation: Generation | None = None
        self.number = 0
        self.tls: PreparedTLS | None = None
        self.serving = Serving(settings, self._prepare_tls, sockets)
        self.started_at: datetime | None = None
        self.last_reload: ReloadReport | None = None
        self._without = tuple(without)
        self._strict = strict
        self._distributions = distributions
        self._imported: dict[str, Part] = {}
        self._changing = threading.Lock()
        self._stop_asked = threading.Event()

    @property
    def ports(self) -> Mapping[tuple[str, str], int]:
        """The TCP ports of the open listeners, by site and scheme."""
        return {(listener.site, listener.scheme): engine.port for listener, engine in self.serving.engines.items()}

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return sum(site.in_flight for site in self.serving.sites.values())

    def skip(self, names: Collection[str]) -> None:
        """Skip further plugins from the next build on."""
        self._without = (*self._without, *names)

    def survey(self) -> Survey:
        """Look at what is installed now."""
        return Survey(self._distributions)

    def build(self, *, look_only: bool = False) -> Generation:
        """Build a generation without serving it.

        Args:
            look_only: Leave the stores closed.

        Raises:
            Refusal: A plugin that is required does not serve.
        """
        return self._build(self.survey(), look_only=look_only)

    def look(self) -> Generation:
        """Build a generation that can't serve, whatever fails, and leave the stores closed."""
        return self._build(self.survey(), look_only=True, complete=False)

    def preview(self, *, dev: bool = False) -> HostView:
        """Return what a host with these settings would serve, for looking at: nothing is opened.

        Args:
            dev: Whether that host runs with `--dev`.
        """
        host = Host(
            self.settings,
            dev=dev,
            without=self._without,
            logger=silent_logger(),
            distributions=self._distributions,
        )
        host.generation = host.look()
        host.generation.close()
        host.number = 1
        return host.view

    def start(self, survey: Survey | None = None) -> None:
        """Build a generation, open the listeners of its sites, and serve from threads of their own.

        Args:
            survey: What is installed, where the caller has looked already.

        Raises:
            Refusal: A plugin that is required does not serve.
            CertificateError: An HTTPS listener has no certificate to show.
            ListenError: A listener can't be opened; those that were are closed again.
        """
        with self._changing:
            survey = survey or self.survey()
            generation = self._build(survey)
            try:
                self.serving.open(generation.sites)
            except BaseException:
                generation.close()
                raise
            self._imported = imported_parts(generation.roster, survey)
            self.generation = generation
            self.number = 1
            self.started_at = datetime.now(UTC)
            self.phase = Phase.SERVING
            self.answered.hand_to(generation.observers())
            generation.notify("started")

    def switch(self, name: str, *, enabled: bool) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and take that up; see `reload`.

        Where the host can't serve with it, the file is as it was before, and the report says why.

        Args:
            name: The plugin.
            enabled: Whether it is to serve.

        Raises:
            OperationError: It can't be switched; nothing has changed.
        """
        from plughost.operations.switching import switch_plugin  # noqa: PLC0415 - reads more than a start needs

        return switch_plugin(self, name, enabled=enabled)

    @property
    def skipped(self) -> Collection[str]:
        """The plugins that were to be skipped from the start, whatever the settings say."""
        return self._without

    def reload(self, accept: Collection[str] = ()) -> ReloadReport:
        """Rediscover, build the next generation beside the running one, swap it in, drain the old one, close the rest.

        Args:
            accept: Plugins that serve now and may be failed or blocked in the next generation.

        Returns:
            What came of it. Where it says that it failed, the running generation is untouched.
        """
        with self._changing:
            begun = monotonic()
            report = self._reload(begun, accept)
            give_back()
            self.last_reload = report
            self.events.emit("reload", **report.as_plain())
            self.logger.log(
                20 if report.ok else 40, "reload", **{key: value for key, value in report.as_plain().items() if value}
            )
            return report

    def wait(self) -> None:
        """Wait until somebody asks the host to stop."""
        while not self._stop_asked.wait(timeout=3600.0):
            pass

    def ask_to_stop(self) -> None:
        """Let `wait` return; safe in a signal handler."""
        self._stop_asked.set()

    def stop(self, grace: float | None = None) -> bool:
        """Answer what is in flight, close every listener, then let the plugins stop.

        Args:
            grace: Seconds after which what still runs is cut off; the setting `grace_time` by default.

        Returns:
            Whether every request in flight was answered.
        """
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.DRAINING
        with self._changing:
            if self.phase is Phase.STOPPED:  # by an earlier call, for which this one waited
                return True
            grace = self.settings.host.grace_time if grace is None else grace
            answered = self.serving.close(tuple(self.serving.sites), grace)
            self.answered.hand_to({})
            if self.generation is not None:
                self.generation.notify("stopping")
                self.generation.close()
            self.phase = Phase.STOPPED
        return answered

    def _reload(self, begun: float, accept: Collection[str]) -> ReloadReport:
        running = self.generation
        if running is None or self.phase is not Phase.SERVING:
            return report_of_nothing(self.number, [f"the host is {self.phase}, not serving"], begun)
        survey = self.survey()
        reasons = restart_reasons(survey, self._imported)
        if reasons:
            return report_of_nothing(self.number, [], begun, restart_needed=reasons)
        try:
            settings, fixed = running.settings.reread()
        except SettingsError as error:
            return report_of_nothing(self.number, error.problems, begun)
        forgotten: list[Forgotten] = []

        def carry(roster: Roster) -> None:
            forgotten.append(carry_over(roster, running.roster, survey, self._imported))

        try:
            following = self._build(survey, settings=settings, running=running, carry=carry)
            swapped = self._swap(running, following, accept)
        except Exception as error:  # noqa: BLE001 - whatever it was, the running generation goes on
            for each in forgotten:
                each.restore()
            problems = [str(error) or type(error).__name__]
            failed = error.roster if isinstance(error, Refusal) else None
            return report_of_nothing(self.number, problems, begun, failed=failed)
        self._retire(running, following, swapped)
        imported = imported_parts(following.roster, survey)
        forget_removed(self._imported, imported)
        self._imported = imported
        return report_of(self.number, running.roster, following.roster, begun, restart_needed=fixed)

    def _swap(self, running: Generation, following: Generation, accept: Collection[str]) -> list[tuple[Site, Assembly]]:
        """Serve the next generation; where its sites can't be opened, close it and leave all as it was.

        Returns:
            Each site and what it served before, which may still be answering.
        """
        try:
            if self._is_stopping():
                raise Refusal("the host is stopping", following.roster)
            _refuse_losses(running.roster, following.roster, accept)
            self.answered.note_all()
            opened = self.serving.open(following.sites)
        except BaseException:
            self.answered.hand_to(running.observers())
            following.close(keep=running)
            raise
        staying = {name: each for name, each in following.sites.items() if name not in opened}
        swapped = self.serving.swap(staying)
        self.answered.hand_to(following.observers())
        self.generation, self.settings = following, following.settings
        self.number += 1
        return swapped

    def _retire(self, running: Generation, following: Generation, swapped: list[tuple[Site, Assembly]]) -> None:
        """Drain the generation that was replaced, and close what only that needed."""
        following.notify("started", fresh_only=True)
        grace = following.settings.host.grace_time
        self.serving.close([name for name in tuple(self.serving.sites) if name not in following.sites], grace)
        until = monotonic() + grace
        for site, assembly in swapped:
            site.drain(assembly, max(0.0, until - monotonic()))
        running.notify("stopping", leaving=following)
        try:
            running.close(keep=following)
        except Exception as error:
            self.logger.error("a store of the last generation did not close", exc_info=error)

    def _build(
        self,
        survey: Survey,
        *,
        settings: Settings | None = None,
        look_only: bool = False,
        running: Generation | None = None,
        carry: Callable[[Roster], None] | None = None,
        complete: bool = True,
    ) -> Generation:
        generation = build(
            survey.plugins,
            settings or self.settings,
            self.logger,
            self.view,
            self.answered,
            dev=self.dev,
            without=self._without,
            look_only=look_only,
            running=running,
            carry=carry,
            interrupted=self._is_stopping,
        )
        try:
            if complete:
                refuse_incomplete(generation, strict=self._strict)
        except Refusal:
            generation.close(keep=running)
            raise
        return generation

    def _is_stopping(self) -> bool:
        return self.phase is Phase.DRAINING

    def _prepare_tls(self) -> PreparedTLS:
        if self.tls is None:
            self.tls = prepare(self.settings, dev=self.dev)
        return self.tls


def _refuse_losses(running: Roster, following: Roster, accept: Collection[str]) -> None:
    """Refuse a generation in which a plugin that serves now would fail."""
    serving = {entry.name for entry in running.active()} - set(accept)
    lost = [entry for entry in following if entry.failure is not None and entry.name in serving]
    if lost:
        raise Refusal("; ".join(f"{entry.found.label} would be {entry.state}" for entry in lost), following)
