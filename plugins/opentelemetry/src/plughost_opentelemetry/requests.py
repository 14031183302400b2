"""A span for each request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from plughost_opentelemetry.spans import UNSAMPLED, UNSAMPLED_SPAN, is_sampled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextvars import Token

    import falcon
    from opentelemetry.trace import Span, Tracer

    from plughost.http import Request
    from plughost_opentelemetry.spans import StoreSpans

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACING: Final = "plughost.tracing"  # in the environ of a request


class _Tracing(NamedTuple):
    """The tracing state of a request, to clean up at its end.

    Attributes:
        span: The request's span.
        stores: Makes the spans of its store operations; None if it isn't sampled.
        token: Detaches its context; None under an agent, which does so itself.
        bound: Resets the context of the log.
    """

    span: Span = trace.INVALID_SPAN
    stores: StoreSpans | None = None
    token: Token[Any] | None = None
    bound: Mapping[str, Token[Any]] = {}


class Requests:
    """Falcon middleware that traces the requests of every site.

    A request with a sampled `traceparent` joins that trace; with an unsampled one, it passes it on and has no span.
    Without a valid `traceparent`, a fraction is sampled here. The others start a trace marked as not sampled, or none
    if the fraction is 0. Under the agent, which has made a span already, that span is completed.
    """

    def __init__(self, sample: float, *, under_agent: bool) -> None:
        """Trace nothing yet.

        Args:
            sample: The fraction of requests without a trace that is sampled.
            under_agent: Whether an agent makes the spans.
        """
        self._active: tuple[Tracer, StoreSpans] | None = None
        self._sample = sample
        # Then no span within such a request is sampled either, so its context need not be marked as unsampled.
        self._ignores_new = not (sample or under_agent or os.environ.get("OTEL_TRACES_SAMPLER"))
        self._under_agent = under_agent

    def begin(self, tracer: Tracer, stores: StoreSpans) -> None:
        """Start tracing."""
        self._active = tracer, stores
        UNSAMPLED_SPAN.hosts += 1

    def end(self) -> None:
        """Stop tracing."""
        UNSAMPLED_SPAN.hosts -= 1
        self._active = None

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Start a span if the request is sampled."""
        environ = req.env
        if self._active is None or (self._ignores_new and "HTTP_TRACEPARENT" not in environ):
            return
        tracer, stores = self._active
        if self._under_agent:
            current = trace.get_current_span()
            if current.get_span_context().is_valid:
                stores.enter()
                environ[_TRACING] = _Tracing(current, stores)
                req.trace_id = format_trace_id(current.get_span_context().trace_id)
            return
        parent = contexts.Context()
        if "HTTP_TRACEPARENT" in environ:
            carrier = {"traceparent": environ["HTTP_TRACEPARENT"], "tracestate": environ.get("HTTP_TRACESTATE", "")}
            parent = _PROPAGATOR.extract(carrier, parent)
        if not (parent or is_sampled(self._sample)):  # an invalid `traceparent` leaves it empty
            if not self._ignores_new:
                contexts.attach(UNSAMPLED)  # it needs no detaching: the request has a context of its own
            return
        span = tracer.start_span(
            req.method if req.method.isupper() else "HTTP",
            parent,
            SpanKind.SERVER,
            {
                "http.request.method": req.method,
                "url.path": environ.get("REQUEST_URI", req.path).partition("?")[0],
                "url.scheme": req.scheme,
                "server.address": req.host,
                "client.address": environ.get("REMOTE_ADDR", ""),
                "network.protocol.version": environ.get("SERVER_PROTOCOL", "").removeprefix("HTTP/"),
                "plughost.request_id": req.request_id,
            },
        )
        token = contexts.attach(trace.set_span_in_context(span, parent))
        req.trace_id = format_trace_id(span.get_span_context().trace_id)
        bound = structlog.contextvars.bind_contextvars(trace_id=req.trace_id)
        if span.is_recording():
            stores.enter()
        environ[_TRACING] = _Tracing(span, stores if span.is_recording() else None, token, bound)

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """End the span, with the route and the status."""
        tracing: _Tracing | None = req.env.get(_TRACING)
        if tracing is None:
            return
        if tracing.stores is not None:
            tracing.stores.leave()
            self._complete(tracing.span, req, resp)
        if tracing.token is not None:
            tracing.span.end()
            structlog.contextvars.reset_contextvars(**tracing.bound)
            contexts.detach(tracing.token)

    def _complete(self, span: Span, req: Request, resp: falcon.Response) -> None:
        span.set_attribute("plughost.site", req.site)
        mounted = req.mounted
        if mounted is not None:
            span.set_attribute("plughost.plugin", mounted.plugin)
            span.set_attribute("http.route", mounted.template)
            if not self._under_agent and req.method.isupper():
                span.update_name(f"{req.method} {mounted.template}")
        span.set_attribute("http.response.status_code", resp.status_code)
        if resp.status_code >= 500:
            span.set_status(StatusCode.ERROR)
