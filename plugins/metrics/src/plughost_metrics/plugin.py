"""Metrics of a host at `/q/metrics`, for Prometheus (CONTRACT 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics

from plughost import Observer, Operation, Response, Route, RouteGroup, hookimpl
from plughost.http import preferred
from plughost_metrics.host import Happenings, HostState
from plughost_metrics.requests import Figures, RequestTimes

if TYPE_CHECKING:
    import falcon

    from plughost import PluginContext

TEXT: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text"


class Scrape:
    """Answers with every metric, as text or as OpenMetrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Answer with a registry's metrics."""
        self._registry = registry

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Write the metrics in the format that the request prefers."""
        if preferred(req, (TEXT, OPENMETRICS)) == OPENMETRICS:
            resp.content_type = openmetrics.CONTENT_TYPE_LATEST
            resp.data = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call] # prometheus-client's
        else:
            resp.content_type = CONTENT_TYPE_PLAIN_0_0_4
            resp.data = generate_latest(self._registry)


class MetricsPlugin:
    """The plugin; one for each host, since what it counts belongs to one.

    It may be made anew while the host runs. Counters must never fall, so they are kept by the host.
    """

    def __init__(self) -> None:
        """Begin with what needs no host."""
        self._registry = CollectorRegistry()
        self._unsubscribe: Callable[[], None] | None = None
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    @hookimpl
    def register_observers(self, context: PluginContext[Any]) -> list[Observer]:
        """Time every request of the host."""
        times = RequestTimes(Figures.kept_by(context), context.host)
        self._registry.register(times)
        return [Observer(name="requests", observe_times=times.observe)]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount the metrics on the site `main`."""
        answer = Response(description="The metrics.", model=str, media_types=(TEXT, OPENMETRICS))
        operation = Operation(summary="Tell the host's metrics", responses={200: answer}, produces=(TEXT, OPENMETRICS))
        route = Route("", Scrape(self._registry), {"GET": operation})
        return [RouteGroup(prefix="/q/metrics", routes=(route,), title="Metrics")]

    @hookimpl
    def started(self, context: PluginContext[Any]) -> None:
        """Begin to watch the host, in the place of the instance that did so before: nothing is to count twice."""
        self._registry.register(HostState(context.host))
        watching = context.keep("watching", list[Callable[[], None]])
        while watching:
            watching.pop()()
        self._unsubscribe = context.host.events.subscribe(Happenings(context, self._registry))
        watching.append(self._unsubscribe)

    @hookimpl
    def stopping(self, context: PluginContext[Any]) -> None:
        """Watch it no more."""
        watching = context.keep("watching", list[Callable[[], None]])
        if self._unsubscribe in watching:
            watching.remove(self._unsubscribe)
            self._unsubscribe()
