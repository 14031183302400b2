"""The tracer provider of the process, which libraries and other plugins take their tracers from.

OpenTelemetry lets it be set once, and a host may reload with other settings. So what is set leads to the provider of
the host that began last, also for tracers that were taken before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

_NOBODY: Final = trace.NoOpTracerProvider()


class _Leading(trace.TracerProvider):
    """Leads to a provider. Older code of this plugin, before a reload, may have set it: others know it by its name."""

    led_by_plughost: TracerProvider = _NOBODY

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer that leads to that of the provider of the moment."""
        return _LeadingTracer(self, args, kwargs)


class _LeadingTracer(trace.Tracer):
    """Leads to the tracer of a provider."""

    def __init__(self, leading: _Leading, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._leading = leading
        self._args, self._kwargs = args, kwargs
        self._last: tuple[TracerProvider, Tracer] = _NOBODY, trace.NoOpTracer()

    def start_span(self, *args: Any, **kwargs: Any) -> Span:
        return self._tracer().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer().start_as_current_span(*args, **kwargs)

    def _tracer(self) -> Tracer:
        provider, tracer = self._last
        if provider is not self._leading.led_by_plughost:
            provider = self._leading.led_by_plughost
            tracer = provider.get_tracer(*self._args, **self._kwargs)
            self._last = provider, tracer
        return tracer


def is_under_agent() -> bool:
    """Tell whether somebody else has set up OpenTelemetry for all of this process, as the agent does."""
    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider) and not hasattr(provider, "led_by_plughost")


def lead_to(provider: TracerProvider) -> None:
    """Let the process's tracers be those of a provider."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_Leading())
    leading: Any = trace.get_tracer_provider()
    leading.led_by_plughost = provider


def lead_away_from(provider: TracerProvider) -> None:
    """Let the process's tracers do nothing, unless they are those of another provider by now."""
    leading: Any = trace.get_tracer_provider()
    if leading.led_by_plughost is provider:
        leading.led_by_plughost = _NOBODY
