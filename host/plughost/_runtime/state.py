"""The state of a host: its parts, and the generation that it serves. `Host` changes it; other modules read it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from importlib import metadata
from typing import TYPE_CHECKING, Any

from plughost._api.events import Events, Subscriber
from plughost._logging import make_logger
from plughost._plugins.discovery import Discovery
from plughost._runtime.audit import Audit
from plughost._runtime.generation import Generation
from plughost._runtime.jobs import Clock, Jobs
from plughost._runtime.lifecycle import Lifecycle
from plughost._runtime.lines import Lines
from plughost._runtime.request_log import RequestLog
from plughost._runtime.sites import Serving, exposed_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    import structlog

    from plughost._api.host import HostServices
    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.distributions import Snapshot
    from plughost._plugins.environment import Environment
    from plughost._plugins.registry import PluginRecord
    from plughost._runtime.sockets import Sockets
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS
    from plughost.stores import OpenStore


class HostState(ABC):
    """The parts of a host, and what it serves.

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
        view: What plugins see of it.
        drain_seconds: The seconds for which the stop waited for a reload and requests in flight.
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
        self.lines: Events = lines or Lines()
        self.logger: structlog.stdlib.BoundLogger = logger or make_logger(settings.host.log, lines=self.lines)
        self.audit: Audit = Audit(self.logger, settings.data_dir, settings.path(settings.host.log.audit))
        self.events: Events = Events()
        self.lines.on_failure = self.events.on_failure = self._log_failed_subscriber
        self.clock: Clock = clock or Clock()
        self.serving: Serving = Serving(settings, self._prepare_tls, sockets)
        self.request_log: RequestLog = RequestLog(self.logger, self.events, self.serving.dispatcher.processor.bind)
        self.jobs: Jobs = Jobs(self.serving.dispatcher, self.clock, self.events, self.logger)
        self.lifecycle: Lifecycle = Lifecycle(self.logger)
        self.started_at: datetime | None = None
        self.started: float = 0.0  # the same by `monotonic`
        self.imported: dict[str, Snapshot] = {}
        self.attempted: dict[str, Snapshot] = {}
        self.last_reload: ReloadReport | None = None
        self.drain_seconds: float = 0.0
        self._strict = strict
        self._distributions = distributions
        self._discovery = Discovery(distributions, self.plugins_dir)
        self._change_lock = threading.Lock()
        self._stop_lock = threading.Lock()
        self.view: HostServices = self._make_view()

    @abstractmethod
    def _make_view(self) -> HostServices:
        """Return what plugins see of the host, whose other parts are there."""

    @property
    def settings(self) -> Settings:
        return self.generation.settings

    @property
    def active(self) -> tuple[PluginRecord, ...]:
        return self.generation.registry.active()

    @property
    def ports(self) -> Mapping[tuple[str, str], int]:
        engines = tuple(self.serving.engines.items())
        return {(listener.site, listener.scheme): engine.port for listener, engine in engines}

    @property
    def tls(self) -> PreparedTLS | None:
        """The certificate of its HTTPS listeners. None if none is open."""
        return next(iter(self.serving.certificates.values()), None)

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        return self.generation.stores

    def environment(self) -> Environment:
        return self._discovery.discover(self.settings.host.allowed)

    def _log_failed_subscriber(self, subscriber: Subscriber, error: BaseException) -> None:
        name = f"{getattr(subscriber, '__module__', '')}.{getattr(subscriber, '__qualname__', repr(subscriber))}"
        self.logger.error("event subscriber failed", subscriber=name.lstrip("."), exc_info=error)

    def _prepare_tls(self) -> PreparedTLS:
        from plughost._tls.certificates import prepare  # noqa: PLC0415 - brings cryptography

        return prepare(self.settings, dev=self.dev)
