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
from pydantic import BaseModel, ConfigDict, Field

from plughost import Observer, Operation, Response, Route, RouteGroup, hookimpl
from plughost.http import preferred
from plughost_metrics.families import PluginMetrics
from plughost_metrics.host import COUNTED_EVENTS, EventCounters, HostState
from plughost_metrics.times import RequestTimes, StoreTimes

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request

TEXT: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text"


class Settings(BaseModel):
    """The table `[plugins.metrics]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    public: bool = Field(
        False, description="Show the metrics to everyone, not only to this machine and on the site `admin`"
    )


class Scrape:
    """Serves all metrics, as text or as OpenMetrics."""

    def __init__(self, registry: CollectorRegistry, *, public: bool) -> None:
        """Take the registry, and whether everybody may read it."""
        self._registry = registry
        self._public = public

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the metrics in the preferred format.

        Raises:
            falcon.HTTPForbidden: The client may not see them.
        """
        if not (self._public or req.may_look):
            raise falcon.HTTPForbidden(
                description="Metrics are for clients on this machine and on the site admin;"
                " the setting public in [plugins.metrics] shows them to everybody."
            )
        resp.append_header("Vary", "Accept")
        if preferred(req, (TEXT, OPENMETRICS)) == OPENMETRICS:
            resp.content_type = openmetrics.CONTENT_TYPE_LATEST
            resp.data = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call] # prometheus-client's
        else:
            resp.content_type = CONTENT_TYPE_PLAIN_0_0_4
            resp.data = generate_latest(self._registry)


class MetricsPlugin:
    """The plugin, with one instance for each host.

    A reload can replace the instance. Counters must never decrease, so the host keeps them.
    """

    def __init__(self) -> None:
        """Register the collectors that need no host."""
        self._registry = CollectorRegistry()
        self._subscriptions: list[Callable[[], None]] = []
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model that validates `[plugins.metrics]`."""
        return Settings

    @hookimpl
    def register_observers(self, context: PluginContext[Settings]) -> list[Observer]:
        """Time every request of the host."""
        times = RequestTimes(context)
        self._registry.register(times)
        self._registry.register(PluginMetrics(context.host))
        return [Observer(name="requests", observe_times=times.observe)]

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount the metrics on the site `main`."""
        example = "# TYPE plughost_up gauge\nplughost_up 1.0\n"
        answer = Response(description="The metrics.", model=str, media_types=(TEXT, OPENMETRICS), example=example)
        refused = Response(description="The client may not see the metrics.")
        operation = Operation(
            id="getMetrics",
            summary="Get the host's metrics",
            description="For Prometheus, in its text format, or as OpenMetrics if `Accept` prefers it.",
            responses={200: answer, 403: refused},
            produces=(TEXT, OPENMETRICS),
        )
        route = Route("", Scrape(self._registry, public=context.settings.public), {"GET": operation})
        return [RouteGroup(prefix="/q/metrics", routes=(route,), title="Metrics")]

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Subscribe to events, after ending the previous instance's subscriptions, so that nothing counts twice."""
        self._registry.register(HostState(context.host))
        subscriptions = context.keep("watching", list[Callable[[], None]])
        while subscriptions:
            subscriptions.pop()()
        stores = StoreTimes(context)
        self._registry.register(stores)
        subscribe = context.host.events.subscribe
        self._subscriptions = [
            subscribe(EventCounters(context, self._registry), *COUNTED_EVENTS),
            subscribe(stores, "store"),
        ]
        subscriptions += self._subscriptions

    @hookimpl
    def stopping(self) -> None:
        """End the subscriptions."""
        for end in self._subscriptions:
            end()
