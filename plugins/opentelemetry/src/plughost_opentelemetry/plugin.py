"""The plugin: it sets up tracing and the export of traces."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from plughost import Middleware, TookTooLong, bounded, hookimpl
from plughost_opentelemetry.process import delegate_to, is_under_agent, stop_delegating_to
from plughost_opentelemetry.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from plughost import PluginContext
    from plughost_opentelemetry.requests import Requests

_EXPORT_SECONDS = 5


class OpenTelemetryPlugin:
    """The plugin, with one instance for each host. Without an endpoint or the agent, requests don't pass through it."""

    def __init__(self) -> None:
        self._requests: Requests | None = None
        self._ending = ExitStack()

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model that validates `[plugins.opentelemetry]`."""
        return Settings

    @hookimpl
    def register_middleware(self, context: PluginContext[Settings]) -> list[Middleware]:
        """Return the tracing middleware, if there is an endpoint or the agent."""
        if not (context.settings.endpoint or is_under_agent()):
            return []
        from plughost_opentelemetry.requests import Requests  # noqa: PLC0415 - not needed without tracing

        self._requests = Requests(context.settings.sample, under_agent=is_under_agent())
        return [Middleware(name="opentelemetry", component=self._requests, scope="host")]

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Start tracing. It can't start earlier, because the exporter has a thread."""
        if self._requests is None:
            return
        from opentelemetry import trace  # noqa: PLC0415 - see above

        from plughost_opentelemetry.spans import JobSpans, StoreSpans  # noqa: PLC0415 - see above

        provider = None
        if not is_under_agent():
            provider, process_provider = _providers(context.settings)
            self._ending.callback(_shut_down, provider)
            delegate_to(process_provider)
            self._ending.callback(stop_delegating_to, process_provider)
        tracer = trace.get_tracer("plughost", tracer_provider=provider)
        stores = StoreSpans(tracer, context.host.events)
        jobs = JobSpans(tracer, stores, context.settings.sample)
        self._ending.callback(context.host.events.subscribe(jobs, "job_started", "job"))
        self._requests.begin(tracer, stores)
        self._ending.callback(self._requests.end)

    @hookimpl
    def stopping(self) -> None:
        """Stop tracing, and export the pending spans."""
        self._ending.close()


def _shut_down(provider: TracerProvider) -> None:
    """Export the pending spans, as far as that is possible within the time of one export."""
    with suppress(TookTooLong):
        bounded(provider.shutdown, _EXPORT_SECONDS, "opentelemetry-shutdown")


def _providers(settings: Settings) -> tuple[TracerProvider, TracerProvider]:
    """Return the host's provider, whose spans are already sampled, and the process's, which samples other spans."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - see above
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio  # noqa: PLC0415 - see above

    resource = Resource.create({"service.name": settings.service})
    # Without a sampler, the provider uses the one that the variable names.
    sampler = None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBasedTraceIdRatio(settings.sample)
    host_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    process_provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint, timeout=_EXPORT_SECONDS))
    for provider in (host_provider, process_provider):
        provider.add_span_processor(processor)
    return host_provider, process_provider
