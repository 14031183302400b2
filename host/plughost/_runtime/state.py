"""The state of a host, and what its plugins and operators see of it. Other modules use it as a `HostState`."""

from __future__ import annotations

import enum
import os
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar, cast

from plughost._api.errors import CertificateError
from plughost._api.events import Events, Subscriber
from plughost._api.hookspecs import documented_hooks
from plughost._api.host import PluginView
from plughost._logging import make_logger
from plughost._plugins.discovery import Discovery
from plughost._plugins.environment import why_not_allowed
from plughost._runtime.audit import Audit
from plughost._runtime.generation import Generation
from plughost._runtime.jobs import Clock, Jobs
from plughost._runtime.request_log import RequestLog
from plughost._runtime.sites import Serving, exposed_addresses, listeners_of
from plughost._runtime.wakeup import StopRequests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    import structlog

    from plughost._api.declarations import Check
    from plughost._api.host import CertificateInfo, HostControl, HostServices, Listener, Load, SiteView, Value
    from plughost._api.jobs import JobView
    from plughost._api.metrics import MetricView
    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.distributions import Snapshot
    from plughost._plugins.registry import PluginRecord
    from plughost._runtime.sockets import Sockets
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS
    from plughost.stores import OpenStore

T = TypeVar("T")


class Phase(enum.StrEnum):
    """The phase of a host. While leaving, it serves everything but is not ready."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


class HostState:
    """The state of a host.

    Attributes:
        version: That of plughost in this process, while another one may be installed already.
        exposed: With `dev`, the addresses that other machines can reach. Then it has no features for development.
        plugins_dir: The folder of single-file plugins. None without that setting or `dev`, or if it is `exposed`.
        without: Names of plugins to skip, in addition to those disabled in the settings.
        logger: Its logger, which emits each line as an event of `lines`, for subscribers.
        generation: The generation that it serves. An empty one before `start`.
        imported: Snapshots, from before the import, of the distributions that this process has imported, by normalised
            name.
        attempted: The same for the last build, which may have been refused.
        drain_seconds: The seconds for which the stop waited for a reload and requests in flight.
        drained_at: The `time.monotonic()` at which an operator drained it. None if not drained.
        handed_over: Whether a successor process serves. This one then stays ready until it ends.
    """

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

        By default it logs as the settings say, discovers plugins on `sys.path`, and opens new sockets.
        """
        self.generation: Generation = Generation(settings=settings)
        self.version: str = metadata.version("plughost")
        self.dev: bool = dev
        self.exposed: tuple[str, ...] = exposed_addresses(settings) if dev else ()
        self.plugins_dir: Path | None = settings.path(settings.host.plugins_dir) if dev and not self.exposed else None
        self.without: tuple[str, ...] = tuple(without)
        self.lines: Events = lines or Events()
        self.logger: structlog.stdlib.BoundLogger = logger or make_logger(settings.host.log, lines=self.lines)
        self.audit: Audit = Audit(self.logger, settings.data_dir, settings.path(settings.host.log.audit))
        self.events: Events = Events()
        self.lines.on_failure = self.events.on_failure = self._log_failed_subscriber
        self.clock: Clock = clock or Clock()
        self.serving: Serving = Serving(settings, self._prepare_tls, sockets)
        self.request_log: RequestLog = RequestLog(self.logger, self.events, self.serving.dispatcher.processor.bind)
        self.jobs: Jobs = Jobs(self.serving.dispatcher, self.clock, self.events, self.logger)
        self.phase: Phase = Phase.STARTING
        self.started_at: datetime | None = None
        self.imported: dict[str, Snapshot] = {}
        self.attempted: dict[str, Snapshot] = {}
        self.last_reload: ReloadReport | None = None
        self.drain_seconds: float = 0.0
        self.drained_at: float | None = None
        self.handed_over: bool = False
        self.view: LiveView = LiveView(self)
        self._strict = strict
        self._distributions = distributions
        self._discovery = Discovery(distributions, self.plugins_dir)
        self._phase_lock = threading.Lock()
        self._change_lock = threading.Lock()
        self._stop_lock = threading.Lock()
        self._stop_requests = StopRequests()

    def enter(self, phase: Phase) -> None:
        """Enter a phase, unless the host is in a later one already."""
        order = list(Phase)
        with self._phase_lock:
            self.phase = max(self.phase, phase, key=order.index)

    @abstractmethod
    def preview_host(self, settings: Settings, *, dev: bool = False) -> HostState:
        """Return a host with other settings that opens nothing, to show what it would serve."""

    @property
    def settings(self) -> Settings:
        return self.generation.settings

    @property
    def active(self) -> tuple[PluginRecord, ...]:
        return self.generation.registry.active()

    @property
    def ports(self) -> Mapping[tuple[str, str], int]:
        return {(listener.site, listener.scheme): engine.port for listener, engine in self.serving.engines.items()}

    @property
    def tls(self) -> PreparedTLS | None:
        """The certificate of its HTTPS listeners. None if none is open."""
        return next(iter(self.serving.certificates.values()), None)

    @property
    def unready(self) -> str | None:
        if self.handed_over:
            return None
        if self.phase is Phase.LEAVING:
            return "it was asked to stop, and serves on for shutdown_delay first"
        if self.phase is not Phase.SERVING:
            return f"it is {self.phase}"
        return None if self.drained_at is None else "plughost drain took it out of service; --undo puts it back"

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        return self.generation.stores

    def _log_failed_subscriber(self, subscriber: Subscriber, error: Exception) -> None:
        name = f"{getattr(subscriber, '__module__', '')}.{getattr(subscriber, '__qualname__', repr(subscriber))}"
        self.logger.error("event subscriber failed", subscriber=name.lstrip("."), exc_info=error)

    def _prepare_tls(self) -> PreparedTLS:
        from plughost._tls.certificates import prepare  # noqa: PLC0415 - brings cryptography

        return prepare(self.settings, dev=self.dev)


class LiveView:
    """A running host, as its plugins see it: a `HostServices`."""

    def __init__(self, host: HostState) -> None:
        self._host = host
        self.control: HostControl = cast("HostControl", host)  # which every host is
        self.events: Events = host.events
        self.lines: Events = host.lines
        self.data_dir: Path = host.settings.data_dir  # which no reload changes, nor the folder of the settings
        self.settings_dir: Path = host.settings.base
        self._objects: dict[tuple[str, str], Any] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}

    @property
    def hooks(self) -> Mapping[str, str]:
        return {name: documentation.partition("\n")[0] for name, documentation in documented_hooks().items()}

    @property
    def phase(self) -> str:
        return self._host.phase.value

    @property
    def unready(self) -> str | None:
        return self._host.unready

    @property
    def generation(self) -> int:
        return self._host.generation.number

    @property
    def started_at(self) -> datetime | None:
        return self._host.started_at

    @property
    def plugins(self) -> tuple[PluginView, ...]:
        return tuple(map(_view, self._host.generation.registry))

    @property
    def sites(self) -> Mapping[str, SiteView]:
        return {name: each.view for name, each in self._host.generation.sites.items()}

    @property
    def listeners(self) -> Mapping[Listener, int]:
        engines = self._host.serving.engines
        if not engines and self.phase == "starting":
            settings = self._host.settings
            return {each: each.port for site in self.sites for each in listeners_of(site, settings)}
        return {listener: engine.port for listener, engine in engines.items()}

    @property
    def in_flight(self) -> Mapping[str, int]:
        return {name: site.in_flight for name, site in self._host.serving.sites.items()}

    @property
    def in_flight_by_plugin(self) -> Mapping[str, int]:
        counts = Counter(plugin for site in self._host.serving.sites.values() for plugin in site.plugins_in_flight())
        active = (record.name for record in self._host.active)
        return {name: counts[name] for name in dict.fromkeys(("", *active, *counts))}

    @property
    def loads(self) -> Mapping[str, Load]:
        return self._host.serving.dispatcher.loads()

    @property
    def store_figures(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        return {(store.plugin, store.name): store.figures for store in self._host.stores.values()}

    @property
    def checks(self) -> tuple[Check, ...]:
        generation = self._host.generation
        declared = (check for record in self._host.active for check in record.declared.checks)
        return (*declared, *generation.stores.checks, *generation.rate_limits.checks(), *self._host.jobs.checks())

    @property
    def metrics(self) -> tuple[MetricView, ...]:
        return tuple(view for record in self._host.active for view in record.context.metrics.views(record.name))

    def now(self) -> datetime:
        return self._host.clock.now()

    @property
    def jobs(self) -> tuple[JobView, ...]:
        return self._host.jobs.views()

    def why_not_allowed(self, distribution: str, version: str) -> str | None:
        return why_not_allowed(self._host.settings.host.allowed, distribution, version)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._host.generation.warnings

    @property
    def last_reload(self) -> ReloadReport | None:
        return self._host.last_reload

    def catch_up(self) -> None:
        self._host.request_log.catch_up()

    def preview(self, *, dev: bool = False) -> HostServices:
        return self._host.preview_host(self._host.settings, dev=dev).view

    def settings(self) -> list[Value]:
        return self._host.generation.setting_values()

    def certificate(self) -> CertificateInfo | None:
        from plughost._tls.certificates import describe  # noqa: PLC0415 - brings cryptography

        return None if self._host.tls is None else describe(self._host.tls)

    def keep(self, plugin: str, name: str, make: Callable[[], T]) -> T:
        key = plugin, name
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._objects:
                self._objects[key] = make()
            value: T = self._objects[key]
            return value

    def answer_query(self, plugin: str, name: str) -> Mapping[str, Any]:
        """Return the response to a query of a plugin's command, or an `error` if no active plugin has it."""
        handler = next((each.context.queries.get(name) for each in self._host.active if each.name == plugin), None)
        if handler is None:
            return {"error": f"no plugin {plugin} with the query {name} is active"}
        try:
            return handler()
        except Exception as error:
            self._host.logger.error("query failed", plugin=plugin, query=name, exc_info=error)
            raise


def _view(record: PluginRecord) -> PluginView:
    return PluginView(
        name=record.name,
        distribution=record.installed.distribution,
        version=record.installed.version,
        state=record.state.value,
        reason=None if record.failure is None else str(record.failure),
        trouble=tuple(str(failure) for failure in record.trouble),
        requires=record.installed.requires,
        hooks=record.hooks,
        sites=tuple(record.sites),
        declared=record.declared,
        seconds=dict(record.seconds),
    )


def status_of(host: HostState) -> dict[str, Any]:
    """Return what `plughost status` shows, as JSON types."""
    started_at = host.started_at
    uptime = (datetime.now(UTC) - started_at).total_seconds() if started_at is not None else None
    return {
        "pid": os.getpid(),
        "version": host.version,
        "phase": host.phase.value,
        "unready": host.unready,
        "dev": host.dev,
        "generation": host.generation.number,
        "started_at": started_at and started_at.isoformat(),
        "uptime_seconds": uptime and round(uptime, 1),
        "in_flight": host.view.in_flight,
        "listeners": [asdict(replace(each, port=port)) for each, port in host.view.listeners.items()],
        "certificate": _certificate_status(host),
        "plugins": [
            {
                "name": each.name,
                "version": each.version,
                "state": each.state,
                "reason": each.reason,
                "trouble": [*each.trouble, *_store_troubles(host, each.name)],
                "prefixes": [*each.declared.prefixes()],
            }
            for each in sorted(host.view.plugins, key=lambda each: each.name)
        ],
        "last_reload": host.last_reload and host.last_reload.as_plain(),
    }


def _store_troubles(host: HostState, plugin: str) -> Iterator[str]:
    for store in host.stores.values():
        if store.plugin == plugin and store.problem is not None:
            yield f"the store {store.name} is not available: {store.problem}"


def _certificate_status(host: HostState) -> dict[str, Any] | None:
    """Return the certificate of the HTTPS listeners, and whether the one on disk differs."""
    if host.tls is None:
        return None
    from plughost._tls.certificates import certificate_in_use, describe  # noqa: PLC0415 - brings cryptography

    info = describe(host.tls)
    try:
        current = describe(*certificate_in_use(host.settings))
        on_disk = "the same" if current.sha256 == info.sha256 else f"another one, until {current.not_after:%Y-%m-%d}"
    except CertificateError as error:
        on_disk = f"none that can be read: {error}"
    return {
        "names": list(info.names),
        "not_after": info.not_after.isoformat(),
        "days_left": info.days_left,
        "sha256": info.sha256,
        "file": str(info.path),
        "on_disk": on_disk,
    }
