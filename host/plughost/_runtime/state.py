"""What a host is at the moment: the part of it that others may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost._api.events import Events
from plughost._runtime.clock import Clock
from plughost._runtime.readiness import Phase, Readiness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import structlog

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.snapshots import Snapshot
    from plughost._runtime.generation import Generation
    from plughost._runtime.jobs import Jobs
    from plughost._runtime.request_log import RequestLog
    from plughost._runtime.sites import Serving
    from plughost._settings.sources import Settings
    from plughost._tls.prepared import PreparedTLS


class HostState:
    """The state of a host.

    Attributes:
        settings: The settings that it runs with.
        dev: Whether it runs with `--dev`.
        logger: Its logger.
        events: What happens on it, for plugins that watch.
        lines: The lines of its log, as they are written, for plugins that watch.
        request_log: The requests that it answered, on their way to the plugins that observe them.
        clock: Its time.
        jobs: What its plugins do by the clock.
        phase: Where it is in its life. While leaving, everything is still served, but readiness is down.
        generation: What it serves. None before `start`.
        number: The number of that generation, from 1.
        serving: Its open sites.
        started_at: When it began to serve.
        imported: The distributions that this process has imported, as they were on disk when that began, by normalised
            name.
        attempted: The same of the last build, which may have been refused.
        last_reload: What became of the last reload. None before the first.
        drain_seconds: Seconds that the stop has waited for requests in flight.
        readiness: Whether load balancers should send it requests.
    """

    settings: Settings
    dev: bool
    logger: structlog.stdlib.BoundLogger
    lines: Events
    request_log: RequestLog
    jobs: Jobs
    serving: Serving

    def __init__(self) -> None:
        """Begin before the first generation."""
        self.events: Events = Events()
        self.clock: Clock = Clock()
        self.phase = Phase.STARTING
        self.generation: Generation | None = None
        self.number = 0
        self.started_at: datetime | None = None
        self.imported: dict[str, Snapshot] = {}
        self.attempted: dict[str, Snapshot] = {}
        self.last_reload: ReloadReport | None = None
        self.drain_seconds: float = 0.0
        self.readiness: Readiness = Readiness()

    @property
    def ports(self) -> Mapping[tuple[str, str], int]:
        """The TCP ports of the open listeners, by site and scheme."""
        return {(listener.site, listener.scheme): engine.port for listener, engine in self.serving.engines.items()}

    @property
    def tls(self) -> PreparedTLS | None:
        """The certificate that its HTTPS listeners show. None where none is open."""
        return next(iter(self.serving.shown.values()), None)

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return sum(site.in_flight for site in self.serving.sites.values())

    @property
    def unready(self) -> str | None:
        """Why the host is not ready. None where it is."""
        return self.readiness.reason(self.phase)
