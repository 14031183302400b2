"""The plugin: where traces go, and what makes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from plughost import Middleware, hookimpl
from plughost_opentelemetry.process import is_under_agent, lead_away_from, lead_to
from plughost_opentelemetry.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.trace import TracerProvider

    from plughost import PluginContext
    from plughost_opentelemetry.requests import Requests

_EXPORT_SECONDS = 5


class OpenTelemetryPlugin:
    """The plugin; one for each host. Without an endpoint and without the agent it adds nothing to any request."""

    def __init__(self) -> None:
        """Begin with nothing traced."""
        self._requests: Requests | None = None
        self._provider: TracerProvider | None = None
        self._of_others: TracerProvider | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model of `[plugins.opentelemetry]`."""
        return Settings

    @hookimpl
    def register_middleware(self, context: PluginContext[Settings]) -> list[Middleware]:
        """Trace every request, where traces go somewhere."""
        if not (context.settings.endpoint or is_under_agent()):
            return []
        from plughost_opentelemetry.requests import Requests  # noqa: PLC0415 - brings what a host without traces needs not

        self._requests = Requests(context.settings.sample, under_agent=is_under_agent())
        return [Middleware(name="opentelemetry", component=self._requests, scope="host")]

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Begin to trace: only now, since what sends traces has a thread of its own."""
        if self._requests is None:
            return
        from opentelemetry import trace  # noqa: PLC0415 - see above

        from plughost_opentelemetry.happenings import JobSpans, StoreSpans  # noqa: PLC0415 - see above

        if not is_under_agent():
            self._provider, self._of_others = _providers(context.settings)
            lead_to(self._of_others)
        tracer = trace.get_tracer("plughost", tracer_provider=self._provider)
        stores = StoreSpans(tracer, context.host.events)
        jobs = JobSpans(tracer, stores, context.settings.sample)
        self._unsubscribe = context.host.events.subscribe(jobs, "job_started", "job")
        self._requests.begin(tracer, stores)

    @hookimpl
    def stopping(self) -> None:
        """Send what is left, and end."""
        if self._requests is not None:
            self._requests.end()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._provider is not None and self._of_others is not None:
            lead_away_from(self._of_others)
            self._provider.shutdown()


def _providers(settings: Settings) -> tuple[TracerProvider, TracerProvider]:
    """Return what makes the spans of requests and jobs that were chosen, and what chooses among those of others."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - see above
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio  # noqa: PLC0415 - see above

    resource = Resource.create({"service.name": settings.service})
    # A provider without a sampler takes the one that the variable names.
    sampler = None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBasedTraceIdRatio(settings.sample)
    chosen = TracerProvider(resource=resource, shutdown_on_exit=False)
    of_others = TracerProvider(sampler, resource, shutdown_on_exit=False)
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint, timeout=_EXPORT_SECONDS))
    for provider in (chosen, of_others):
        provider.add_span_processor(processor)
    return chosen, of_others
