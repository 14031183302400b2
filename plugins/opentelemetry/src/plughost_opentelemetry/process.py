"""The tracer provider of the process, from which libraries and other plugins get their tracers.

OpenTelemetry allows it to be set only once, but a reload can change the settings. So a delegating provider is set: it
uses the provider of the host that started last, even for tracers that were created before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

_NO_PROVIDER: Final = trace.NoOpTracerProvider()


class _DelegatingProvider(trace.TracerProvider):
    """Delegates to `led_by_plughost`. Code from before a reload may have set it, so the attribute identifies it."""

    led_by_plughost: TracerProvider = _NO_PROVIDER

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer that delegates to one of the current provider."""
        return _DelegatingTracer(self, args, kwargs)


class _DelegatingTracer(trace.Tracer):
    """Delegates to a tracer of the current provider."""

    def __init__(self, delegating: _DelegatingProvider, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._provider = delegating
        self._args, self._kwargs = args, kwargs
        self._last: tuple[TracerProvider, Tracer] = _NO_PROVIDER, trace.NoOpTracer()

    def start_span(self, *args: Any, **kwargs: Any) -> Span:
        return self._tracer().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer().start_as_current_span(*args, **kwargs)

    def _tracer(self) -> Tracer:
        provider, tracer = self._last
        if provider is not self._provider.led_by_plughost:
            provider = self._provider.led_by_plughost
            tracer = provider.get_tracer(*self._args, **self._kwargs)
            self._last = provider, tracer
        return tracer


def is_under_agent() -> bool:
    """Return whether something else, such as the agent, has set up OpenTelemetry for the process."""
    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider) and not hasattr(provider, "led_by_plughost")


def delegate_to(provider: TracerProvider) -> None:
    """Delegate the process's tracers to a provider."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_DelegatingProvider())
    delegating: Any = trace.get_tracer_provider()
    delegating.led_by_plughost = provider


def stop_delegating_to(provider: TracerProvider) -> None:
    """Disable the process's tracers, unless they delegate to another provider by now."""
    delegating: Any = trace.get_tracer_provider()
    if delegating.led_by_plughost is provider:
        delegating.led_by_plughost = _NO_PROVIDER
