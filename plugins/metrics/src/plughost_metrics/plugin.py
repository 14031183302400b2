"""Metrics of a host at `/q/metrics`, for Prometheus (CONTRACT 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import falcon
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
from plughost.http import PROBLEM_DETAILS, preferred
from plughost_metrics.host import TOLD, Happenings, HostState
from plughost_metrics.of_plugins import OfPlugins
from plughost_metrics.requests import NAME, RequestTimes
from plughost_metrics.settings import Settings
from plughost_metrics.times import Figures, StoreTimes

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request

TEXT: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text"


class Scrape:
    """Answers with every metric, as text or as OpenMetrics."""

    def __init__(self, registry: CollectorRegistry, *, public: bool) -> None:
        """Answer with a registry's metrics, to everybody or to who may look."""
        self._registry = registry
        self._public = public

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Write the metrics in the format that the request prefers.

        Raises:
            falcon.HTTPForbidden: A stranger asks.
        """
        if not (self._public or req.may_look):
            raise falcon.HTTPForbidden(
                description="Metrics are for clients on this machine and on the site admin;"
                " the setting public in [plugins.metrics] shows them to everybody."
            )
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
        self._watching: list[Callable[[], None]] = []
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model of `[plugins.metrics]`."""
        return Settings

    @hookimpl
    def register_observers(self, context: PluginContext[Settings]) -> list[Observer]:
        """Time every request of the host."""
        times = RequestTimes(Figures.kept_by(context, NAME), context.host)
        self._registry.register(times)
        self._registry.register(OfPlugins(context.host))
        return [Observer(name="requests", observe_times=times.observe)]

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount the metrics on the site `main`."""
        example = "# TYPE plughost_up gauge\nplughost_up 1.0\n"
        answer = Response(description="The metrics.", model=str, media_types=(TEXT, OPENMETRICS), example=example)
        refused = Response(description="A stranger asks.", media_types=(PROBLEM_DETAILS.media_type,))
        operation = Operation(
            id="getMetrics",
            summary="Tell the host's metrics",
            description="For Prometheus, in its text format, or as OpenMetrics where `Accept` asks for that.",
            responses={200: answer, 403: refused},
            produces=(TEXT, OPENMETRICS),
        )
        route = Route("", Scrape(self._registry, public=context.settings.public), {"GET": operation})
        return [RouteGroup(prefix="/q/metrics", routes=(route,), title="Metrics")]

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Begin to watch the host, in the place of the instance that did so before: nothing is to count twice."""
        self._registry.register(HostState(context.host))
        watching = context.keep("watching", list[Callable[[], None]])
        while watching:
            watching.pop()()
        stores = StoreTimes(context)
        self._registry.register(stores)
        subscribe = context.host.events.subscribe
        self._watching = [subscribe(Happenings(context, self._registry), *TOLD), subscribe(stores, "store")]
        watching += self._watching

    @hookimpl
    def stopping(self, context: PluginContext[Settings]) -> None:
        """Watch it no more."""
        watching = context.keep("watching", list[Callable[[], None]])
        for end in self._watching:
            if end in watching:
                watching.remove(end)
                end()
