"""The host: builds a generation, serves it, swaps in the next one, and stops without losing a request."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from plughost._api.events import Events
from plughost._logging import make_logger, silent_logger
from plughost._plugins.allowed import only_allowed
from plughost._plugins.registry import Registry
from plughost._plugins.reuse import imported_snapshots, restart_reasons, reuse_unchanged, unload_removed
from plughost._runtime.audit import audit_of
from plughost._runtime.generation import (
    Discovery,
    Generation,
    GenerationRefused,
    build,
    migrate,
    refuse_incomplete,
    refuse_losses,
    rehearse,
)
from plughost._runtime.jobs import Clock, Jobs
from plughost._runtime.reports import report_of, report_of_nothing
from plughost._runtime.request_log import RequestLog
from plughost._runtime.sites import Serving
from plughost._runtime.state import HostState, Phase
from plughost._runtime.view import LiveView
from plughost._runtime.wakeup import StopRequests
from plughost._settings.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from importlib import metadata

    import structlog

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.environment import Environment
    from plughost._plugins.snapshots import Snapshot
    from plughost._runtime.sockets import Sockets
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS

_END_SECONDS: Final = 2.0  # for threads that have nothing to do any more


class Host(HostState):
    """A host of plugins in this process. Several may live side by side."""

    view: LiveView
    generation: Generation | None
    number: int
    started_at: datetime | None
    phase: Phase
    imported: dict[str, Snapshot]
    attempted: dict[str, Snapshot]
    last_reload: ReloadReport | None
    drain_seconds: float
    drained_at: float | None

    def __init__(
        self,
        settings: Settings,
        *,
        dev: bool = False,
        without: Collection[str] = (),
        strict: bool = False,
        logger: structlog.stdlib.BoundLogger | None = None,
        distributions: Callable[[], Iterable[metadata.Distribution]] | None = None,
        sockets: Sockets | None = None,
        lines: Events | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare a host that does nothing yet.

        By default it logs as the settings say, finds what is on `sys.path`, and opens its sockets anew. `without` names
        plugins to skip, beside those that the settings disable. The logger tells `lines` of each line.
        """
        super().__init__(without, clock if clock is not None else Clock())
        self.settings: Settings = settings
        self.dev = dev
        self.lines: Events = lines if lines is not None else Events()
        self.logger: structlog.stdlib.BoundLogger = (
            logger if logger is not None else make_logger(settings.host.log, lines=self.lines)
        )
        self.serving: Serving = Serving(settings, self._prepare_tls, sockets)
        self.request_log: RequestLog = RequestLog(self.logger, self.events, self.serving.dispatcher.processor.bind)
        self.jobs: Jobs = Jobs(self.serving.dispatcher, self.clock, self.events, self.logger)
        self.view = LiveView(self)
        self._strict = strict
        self._distributions = distributions
        self._discovery = Discovery(distributions)
        self._changing = threading.Lock()
        self._stops = StopRequests()

    def skip(self, names: Collection[str]) -> None:
        """Skip further plugins from the next build on."""
        self._without = (*self._without, *names)

    def environment(self) -> Environment:
        """Look at what is installed now."""
        return self._discovery.look(self.settings, dev=self.dev)

    def look(self, *, rehearsed: bool = False) -> Generation:
        """Build a generation that can't serve, and leave the stores closed, or `rehearsed` try their migrations."""
        return self._build(self.environment(), rehearse if rehearsed else None, complete=False)

    def beside(self, settings: Settings, *, dev: bool = False) -> Host:
        """Return a host with other settings that opens nothing, to look at what it would serve."""
        without, distributions = self._without, self._distributions
        host = Host(settings, dev=dev, without=without, logger=silent_logger(), distributions=distributions)
        environment = host.environment()
        registry = host._register(environment, settings)
        self.imported = imported_snapshots(registry, environment) | self.imported
        host.generation = host._build(environment, None, registry, complete=False)
        host.generation.close()
        host.number = 1
        return host

    def start(self, environment: Environment | None = None) -> None:
        """Build a generation, open the listeners of its sites, and serve from threads of their own.

        Raises:
            GenerationRefused: A plugin that is required does not serve.
            CertificateError: An HTTPS listener has no certificate to show.
            ListenError: A listener can't be opened. Those that were are closed again.
        """
        with self._changing:
            environment = environment or self.environment()
            registry = self._register(environment, self.settings)
            self.attempted = imported_snapshots(registry, environment)
            generation = self._build(environment, partial(migrate, prepare=self.serving.prepare), registry)
            try:
                self.serving.open(generation.sites)
                generation.stores.open()
            except BaseException:
                self.serving.close(tuple(self.serving.sites), grace=0.0)
                generation.close()
                raise
            self.serving.dispatcher.blocking_plugins = generation.blocking_plugins()
            self.imported = self.attempted
            self.generation = generation
            self.number = 1
            self.started_at = datetime.now(UTC)
            self.phase = Phase.SERVING
            self.request_log.hand_to(generation.observers())
            generation.notify("started")
            self.jobs.take_up(generation.registry.active())

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Rediscover, build the next generation beside the running one, swap it in, drain the old one, close the rest.

        Arguments as of `HostControl.reload`. Where the report says that it failed, the running generation is untouched.
        """
        with self._changing:
            begun = monotonic()
            report = self._take_up_certificate(self._reload(begun, accept))
            frozen = gc.get_freeze_count()
            gc.unfreeze()
            gc.collect()  # the old generation is full of cycles
            if frozen:
                gc.freeze()
            self.last_reload = report
            self.events.emit("reload", **report.as_plain())
            outcome = "ok" if report.ok else "failed"
            audit_of(self.settings, self.logger).note("reload", outcome, generation=report.generation, **(origin or {}))
            self.logger.log(
                20 if report.ok else 40, "reload", **{key: value for key, value in report.as_plain().items() if value}
            )
            return report

    def wait(self) -> None:
        """Wait until somebody asks the host to stop."""
        self._stops.wait(1)

    def ask_to_stop(self) -> None:
        """Let `wait` return, or when asked again, `leave`. Safe in a signal handler."""
        self._stops.add()

    def drain(self, *, undo: bool = False) -> None:
        """Let readiness be down while everything is served, until that is undone or the process ends."""
        if undo:
            self.drained_at = None
        elif self.drained_at is None:
            self.drained_at = monotonic()
        self.logger.info("readiness", ready=self.unready is None, reason=self.unready)

    def leave(self) -> None:
        """Let readiness be down for `shutdown_delay` before the stop, and serve everything meanwhile.

        The time in which `drain` has had it down already counts. Being asked to stop again ends the wait.
        """
        delay = self.settings.host.shutdown_delay
        if self.phase is Phase.SERVING and delay:
            self.phase = Phase.LEAVING
            self.logger.info("readiness", ready=False, reason=self.unready)
            left = delay if self.drained_at is None else self.drained_at + delay - monotonic()
            self._stops.wait(2, left)

    def stop(self) -> bool:
        """Answer what is in flight, close every listener, let the plugins stop; return whether all was answered."""
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.DRAINING
        with self._changing:
            if self.phase is Phase.STOPPED:  # by an earlier call, for which this one waited
                return True
            grace = self.settings.host.grace_time
            self.jobs.leave()
            if self.generation is not None:
                self.generation.notify("draining")
            begun = monotonic()
            self.serving.end_streams(closing=self.serving.sites)
            answered = self.serving.close(tuple(self.serving.sites), grace)
            self.jobs.end(begun + grace)
            self.drain_seconds = monotonic() - begun
            self.serving.dispatcher.close(_END_SECONDS if answered else 0.1)
            self.request_log.hand_to({})
            self.request_log.access.write()
            if self.generation is not None:
                self.generation.notify("stopping")
                self.generation.close()
            self.phase = Phase.STOPPED
        return answered

    def _reload(self, begun: float, accept: Collection[str]) -> ReloadReport:
        running = self.generation
        if running is None or self.phase is not Phase.SERVING:
            return report_of_nothing(self.number, [f"the host is {self.phase}, not serving"], begun)
        environment = self.environment()
        try:
            settings, fixed = running.settings.reread()
        except SettingsError as error:
            return report_of_nothing(self.number, error.problems, begun)
        registry = self._register(environment, settings)
        self.attempted = imported_snapshots(registry, environment)
        reasons = restart_reasons(self.attempted, self.imported, environment.shared)
        if reasons:
            return report_of_nothing(self.number, [], begun, restart_needed=reasons)
        restore_modules = reuse_unchanged(registry, running.registry, environment, self.imported)
        try:
            finish = partial(migrate, running=running, prepare=self.serving.prepare)
            following = self._build(environment, finish, registry, settings=settings, running=running, accept=accept)
            self._swap(running, following)
        except Exception as error:  # noqa: BLE001 - whatever it was, the running generation goes on
            restore_modules()
            self.imported = self.attempted | self.imported
            problems = [str(error) or type(error).__name__]
            refused = error.registry if isinstance(error, GenerationRefused) else ()
            return report_of_nothing(self.number, problems, begun, refused=refused)
        cut_off = self._retire(running, following)
        self.imported = unload_removed(self.imported, self.attempted)
        return report_of(
            self.number, running.registry, following.registry, begun, cut_off=cut_off, restart_needed=fixed
        )

    def _swap(self, running: Generation, following: Generation) -> None:
        """Serve the next generation. Where its sites or stores can't be opened, close it and leave all as it was."""
        before = set(self.serving.sites)
        try:
            if self._is_stopping():
                raise GenerationRefused("the host is stopping", following.registry)
            self.request_log.note_all()
            opened = self.serving.open(following.sites)
            following.stores.open(running.stores)
        except BaseException:
            self.serving.leave_prepared()
            self.serving.close(set(self.serving.sites) - before, grace=0.0)
            self.request_log.hand_to(running.observers())
            following.close(keep=running)
            raise
        staying = {name: each for name, each in following.sites.items() if name not in opened}
        self.serving.swap(staying)
        self.serving.dispatcher.blocking_plugins = following.blocking_plugins()
        self.request_log.hand_to(following.observers())
        self.generation, self.settings = following, following.settings
        self.number += 1

    def _retire(self, running: Generation, following: Generation) -> list[str]:
        """Drain the generation that was replaced, and close what only that needed. Return what was cut off.

        Requests of plugins that are reused go on as they are, unless middleware that leaves is around them.
        """
        following.notify("started", following.names(reused=False))
        leaving = {entry.name for entry in running.registry.active()} - following.names(reused=True)
        self.jobs.leave(leaving)
        running.notify("draining", leaving)
        begun, grace = monotonic(), following.settings.host.grace_time
        waited_for = None if running.wraps_others(leaving) else leaving
        closing = [name for name in tuple(self.serving.sites) if name not in following.sites]
        self.serving.end_streams(waited_for, closing=closing)
        cut_off = []
        if not self.serving.close(closing, grace):
            cut_off.append(f"requests on the site {' and '.join(closing)}")
        jobs_left = self.jobs.drain(begun + grace, leaving)
        self.jobs.take_up(following.registry.active())  # the beat goes on, however long requests take
        left = self.serving.drain(max(0.0, begun + grace - monotonic()), waited_for)
        cut_off += [f"{number} of {plugin or 'no plugin'}" for plugin, number in sorted(left.items())] + jobs_left
        waited = monotonic() - begun
        running.notify("stopping", leaving)
        try:
            running.close(keep=following)
        except Exception as error:
            self.logger.error("a store of the last generation did not close", exc_info=error)
        return [f"{each}, after {waited:.1f} s (the setting grace_time is {grace:g} s)" for each in cut_off]

    def _build(
        self,
        environment: Environment,
        finish: Callable[[Generation], Generation] | None,
        registry: Registry | None = None,
        *,
        settings: Settings | None = None,
        running: Generation | None = None,
        accept: Collection[str] = (),
        complete: bool = True,
    ) -> Generation:
        """Build a generation, and refuse it before its stores are migrated where that is possible. See `build`."""

        def refuse(generation: Generation) -> None:
            if complete:
                refuse_incomplete(generation, strict=self._strict)
            if running is not None:
                refuse_losses(running.registry, generation.registry, accept)

        settings = settings or self.settings
        generation = build(
            registry or self._register(environment, settings),
            settings,
            self.logger,
            self.view,
            self.request_log,
            dev=self.dev,
            without=self._without,
            running=running,
        )
        generation = replace(generation, warnings=(*generation.warnings, *environment.warnings))
        try:
            refuse(generation)
            if finish is not None:
                generation = finish(generation)
                refuse(generation)
        except BaseException:
            self.serving.leave_prepared()
            generation.close(keep=running)
            raise
        return generation

    def _register(self, environment: Environment, settings: Settings) -> Registry:
        """Return every installed plugin, those to skip marked."""
        skipped = {*settings.host.disabled, *self._without}
        plugins = only_allowed(environment.plugins, settings.host.allowed)
        return Registry(plugins, skipped, timeout=settings.host.hook_timeout, interrupted=self._is_stopping)

    def _is_stopping(self) -> bool:
        return self.phase in {Phase.LEAVING, Phase.DRAINING}

    def _take_up_certificate(self, report: ReloadReport) -> ReloadReport:
        generation = self.generation
        if generation is None or self.phase is not Phase.SERVING:
            return report
        from plughost._tls.certificates import take_up_certificate  # noqa: PLC0415 - brings cryptography

        return take_up_certificate(report, self.serving, generation.sites, self.settings, dev=self.dev)

    def _prepare_tls(self) -> PreparedTLS:
        from plughost._tls.certificates import prepare  # noqa: PLC0415 - brings cryptography

        return prepare(self.settings, dev=self.dev)
