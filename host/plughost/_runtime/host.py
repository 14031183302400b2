"""The host: builds a generation, serves it, swaps in the next one, and stops without losing a request."""

from __future__ import annotations

import gc
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from plughost._api.bounded import Interrupted, NoThread, TookTooLong, bounded
from plughost._logging import silent_logger
from plughost._plugins.discovery import wait_for_change
from plughost._plugins.registry import Registry
from plughost._plugins.reuse import imported_snapshots, restart_reasons, reuse_unchanged, unload_removed
from plughost._runtime.building import build, migrate, rehearse
from plughost._runtime.generation import (
    Generation,
    GenerationRefused,
    damaged_plugins,
    moved_stores,
    refuse,
    report_swapped,
    report_unchanged,
)
from plughost._runtime.lifecycle import Phase
from plughost._runtime.state import HostState
from plughost._runtime.trusted import TrustedControl
from plughost._runtime.view import LiveView
from plughost._servers import shortage_for_load
from plughost._servers.threads import set_stack_size
from plughost._settings.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.distributions import Snapshot
    from plughost._plugins.environment import Environment
    from plughost._settings.sources import Settings

_END_SECONDS: Final = 2.0  # for idle threads to end, and for requests if a reload took the grace time


class Host(HostState):
    """A host of plugins in this process, which may have several."""

    # As in `HostState`: a type that pyright infers from an assignment here would be narrower.
    view: LiveView
    generation: Generation
    started_at: datetime | None
    started: float
    imported: dict[str, Snapshot]
    attempted: dict[str, Snapshot]
    last_reload: ReloadReport | None
    drain_seconds: float

    def _make_view(self) -> LiveView:
        return LiveView(self, TrustedControl(self, self.reload, self.preview), self.preview)

    def dry_run(self, *, rehearsed: bool = False) -> Generation:
        """Build a generation that never serves. Its stores stay closed, or try their migrations if `rehearsed`."""
        environment = self.environment()
        generation = build(self, environment, self._registry(environment, self.settings), self.settings)
        return rehearse(self, generation) if rehearsed else generation

    def preview(self, settings: Settings, *, dev: bool = False) -> Host:
        """Return a host with other settings that opens nothing, to show what it would serve."""
        without, distributions = self.without, self._distributions
        host = Host(settings, dev=dev, without=without, logger=silent_logger(), distributions=distributions)
        # A stop waits for the lock below, so it ends the preview.
        host.lifecycle.stop_requests = self.lifecycle.stop_requests
        with self._change_lock:  # a reload would take what is imported here for what is installed then
            environment = host.environment()
            registry = host._registry(environment, settings)
            host.attempted = imported_snapshots(registry, environment)
            host.generation = build(host, environment, registry, settings)
            host.generation.close()
            self.imported = host.attempted | self.imported
        return host

    def start(self) -> None:
        """Build a generation, open the listeners of its sites, and serve in other threads.

        Raises:
            GenerationRefused: A required plugin does not serve, or the system allows too few threads or files.
            CertificateError: An HTTPS listener has no usable certificate.
            ListenError: A listener can't be opened. Those already open are closed again.
            Interrupted: It was asked to stop meanwhile.
        """
        set_stack_size()
        if shortage := shortage_for_load():
            raise GenerationRefused(shortage, Registry(()))
        with self._change_lock:
            environment = self.environment()
            registry = self._registry(environment, self.settings)
            self.attempted = imported_snapshots(registry, environment)
            generation = self._build(environment, registry, self.settings)
            self._swap(generation)
            self.imported = self.attempted
            self.started_at, self.started = datetime.now(UTC), monotonic()
            self.lifecycle.enter(Phase.SERVING)
            generation.notify("started")
            self.jobs.set_plugins(generation.registry.active())

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Build the next generation from what is installed now, swap it in, then drain and close the old one.

        The arguments are those of `HostControl.reload`. A reload that fails leaves the running generation untouched.
        """
        with self._change_lock:
            started = monotonic()
            wait_for_change(self.lifecycle.is_stopping, to_end=False)
            report = self._renew_certificate(self._reload(accept))
            report = replace(report, seconds={**report.seconds, "total": round(monotonic() - started, 4)})
            frozen = gc.get_freeze_count()
            gc.unfreeze()
            gc.collect()  # the old generation is full of reference cycles
            if frozen:
                gc.freeze()
            self.last_reload = report
            self._announce(report)
            outcome = "ok" if report.swapped else "failed"
            self.audit.record("reload", outcome, generation=report.generation, **(origin or {}))
            self.logger.log(
                20 if report.ok else 40, "reload", **{key: value for key, value in report.as_plain().items() if value}
            )
            return report

    def _announce(self, report: ReloadReport) -> None:
        """Emit the event of a reload. Subscribers that hang hold back no other reload."""
        try:
            emit = partial(self.events.emit, "reload", **report.as_plain())
            bounded(emit, self.settings.host.hook_timeout, "reload-event")
        except (TookTooLong, NoThread) as error:
            self.logger.error("not all subscribers to the event reload were called", exc_info=error)

    def stop(self) -> bool:
        """Answer requests in flight, close all listeners, and stop the plugins. Return whether all were answered.

        All have `grace_time` together, and requests 2 s more if a reload took it. A reload that takes longer, such as
        for a migration that hangs, is left behind. What it has swapped in or committed by then stays.
        """
        self.lifecycle.enter(Phase.DRAINING)
        with self._stop_lock:
            if self.lifecycle.phase is Phase.STOPPED:  # by another call, while this one waited for the lock
                return True
            asked, grace = monotonic(), self.settings.host.grace_time
            has_lock = self._change_lock.acquire(timeout=grace)
            if not has_lock:
                self.logger.warning("a reload was cut off: no migration is kept that it had not committed yet")
            try:
                self.drain_seconds = monotonic() - asked
                return self._stop(max(grace - self.drain_seconds, min(grace, _END_SECONDS)))
            finally:
                if has_lock:
                    self._change_lock.release()

    def _stop(self, grace: float) -> bool:
        self.jobs.stop()
        self.generation.notify("draining")
        started = monotonic()
        self.serving.end_streams(closing=self.serving.sites)
        answered = self.serving.close(tuple(self.serving.sites), grace)
        self.jobs.close(started + grace)
        self.drain_seconds += monotonic() - started
        self.serving.dispatcher.close(_END_SECONDS if answered else 0.1)
        self.request_log.set_observers({})
        self.request_log.access.write()
        self.generation.notify("stopping")
        self.generation.close()
        self.lifecycle.enter(Phase.STOPPED)
        return answered

    def _reload(self, accept: Collection[str]) -> ReloadReport:
        running = self.generation
        is_serving = self.lifecycle.is_serving
        obstacle = shortage_for_load() if is_serving else f"the host is {self.lifecycle.phase}, not serving"
        if obstacle is not None:
            return report_unchanged(running, [obstacle])
        try:
            settings, needs_restart = running.settings.reread()
        except SettingsError as error:
            return report_unchanged(running, error.problems)
        environment = self._discovery.discover(settings.host.allowed)
        registry = self._registry(environment, settings)
        self.attempted = imported_snapshots(registry, environment)
        damaged = damaged_plugins(environment, running, {*settings.host.disabled, *accept})
        if damaged:
            return report_unchanged(running, damaged)
        reasons = restart_reasons(self.attempted, self.imported, environment.shared)
        if reasons:
            return report_unchanged(running, [], restart_needed=reasons)
        restore_modules = reuse_unchanged(registry, running.registry, environment, self.imported)
        try:
            following = self._build(environment, registry, settings, accept)
            self._swap(following)
        except Exception as error:  # noqa: BLE001 - the running generation goes on, whatever was raised
            restore_modules()
            self.imported = self.attempted | self.imported
            problems = [str(error) or type(error).__name__]
            refused = error.registry if isinstance(error, GenerationRefused) else ()
            return report_unchanged(running, problems, refused=refused)
        cut_off = self._retire(running, following)
        self.imported = unload_removed(self.imported, self.attempted)
        return report_swapped(running, following, cut_off=cut_off, restart_needed=needs_restart)

    def _registry(self, environment: Environment, settings: Settings) -> Registry:
        """Return a registry of all installed plugins. Those to skip are disabled."""
        skipped = {*settings.host.disabled, *self.without}
        timeout = settings.host.hook_timeout
        return Registry(environment.plugins, skipped, timeout=timeout, interrupted=self.lifecycle.is_stopping)

    def _build(
        self, environment: Environment, registry: Registry, settings: Settings, accept: Collection[str] = ()
    ) -> Generation:
        """Build and migrate a generation. Refuse it before the migration of its stores if possible. See `build`."""
        running, generation = self.generation, build(self, environment, registry, settings)
        try:
            refuse(generation, running, accept, strict=self._strict)
            self.serving.prepare(generation.sites)
            if running.number:
                generation = migrate(self, generation)
            else:  # a stop ends the process, which undoes the migrations; a reload may take `grace_time`
                generation = bounded(partial(migrate, self, generation), inf, "migrate", self.lifecycle.is_stopping)
            refuse(generation, running, accept, strict=self._strict)
        except BaseException:
            self.serving.release_prepared()
            generation.close(still_used_by=running)
            raise
        return generation

    def _swap(self, following: Generation) -> None:
        """Swap in the next generation. If its sites or stores can't be opened, close it and undo all changes."""
        open_before, running = set(self.serving.sites), self.generation
        is_start = not running.number
        try:
            if self.lifecycle.is_stopping():
                raise Interrupted("the host is stopping")
            self.request_log.record_all()
            if following.observers():
                self.request_log.start()
            if any(each.declared.jobs for each in following.registry.active()):
                self.jobs.start()
            if is_start:  # requests come once the ports are open: health must have its checks by then
                self.generation = following
            opened = self.serving.open(following.sites)
            following.stores.open(None if is_start else running.stores)
        except BaseException:
            self.generation = running
            self.serving.release_prepared()
            self.serving.close(set(self.serving.sites) - open_before, grace=0.0)
            self.request_log.set_observers(running.observers(), running.settings.host.hook_timeout)
            self.jobs.set_plugins(running.registry.active())
            following.close(still_used_by=running)
            raise
        self.serving.swap({name: each for name, each in following.sites.items() if name not in opened})
        self.generation = following
        self.serving.dispatcher.pool.plugins = following.nonblocking_methods()
        self.request_log.set_observers(following.observers(), following.settings.host.hook_timeout)
        for name, before, place in moved_stores(running, following):
            what = "the store is served from another place now; its data was not moved"
            self.logger.warning(what, store=name, before=before, place=place, see="docs/operators/stores.md")

    def _retire(self, running: Generation, following: Generation) -> list[str]:
        """Drain the replaced generation, and close what only it used. Return what was cut off.

        Requests of reused plugins need no draining, unless middleware of a leaving plugin wraps them.
        """
        following.notify("started", following.names(reused=False))
        leaving = {record.name for record in running.registry.active()} - following.names(reused=True)
        self.jobs.stop(leaving)
        running.notify("draining", leaving)
        started, grace = monotonic(), following.settings.host.grace_time
        drained_plugins = None if running.has_shared_middleware(leaving) else leaving
        closing = [name for name in tuple(self.serving.sites) if name not in following.sites]
        self.serving.end_streams(drained_plugins, closing=closing)
        cut_off = []
        if not self.serving.close(closing, grace):
            cut_off.append(f"requests on the site {' and '.join(closing)}")
        jobs_left = self.jobs.drain(started + grace, leaving)
        self.jobs.set_plugins(following.registry.active())  # before the requests are drained, so that no job is late
        remaining = self.serving.drain(max(0.0, started + grace - monotonic()), drained_plugins)
        cut_off += [f"{number} of {plugin or 'no plugin'}" for plugin, number in sorted(remaining.items())] + jobs_left
        waited = monotonic() - started
        running.notify("stopping", leaving)
        try:
            running.close(still_used_by=following)
        except Exception as error:
            self.logger.error("a store of the last generation did not close", exc_info=error)
        return [f"{each}, after {waited:.1f} s (the setting grace_time is {grace:g} s)" for each in cut_off]

    def _renew_certificate(self, report: ReloadReport) -> ReloadReport:
        if not self.lifecycle.is_serving or not self.serving.certificates:
            return report
        from plughost._tls.certificates import reload_certificate  # noqa: PLC0415 - brings cryptography

        return reload_certificate(report, self.serving, self.generation.sites, self.settings, dev=self.dev)
