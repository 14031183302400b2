"""Spans for store operations and jobs, made from the host's events, which arrive in the working thread."""

from __future__ import annotations

import random
import threading
from time import time_ns
from typing import TYPE_CHECKING, Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token

    from opentelemetry.trace import Span, Tracer

    from plughost import Event, Events


_ids: Final = RandomIdGenerator()


class _Unsampled(NonRecordingSpan):
    """The span of everything unsampled. Each access to its context starts a trace that is marked as not sampled.

    Attributes:
        hosts: The number of hosts in this process that trace; without any, the context is invalid.
    """

    hosts = 0

    def get_span_context(self) -> SpanContext:
        if not self.hosts:
            return trace.INVALID_SPAN_CONTEXT
        return SpanContext(_ids.generate_trace_id(), _ids.generate_span_id(), is_remote=False)


UNSAMPLED_SPAN: Final = _Unsampled(trace.INVALID_SPAN_CONTEXT)
UNSAMPLED: Final = trace.set_span_in_context(UNSAMPLED_SPAN, contexts.Context())
"""The context of everything unsampled, shared so that unsampled requests cost nothing."""


class _Thread(threading.local):
    """The job that this thread runs, with its span if it is sampled."""

    job: tuple[Span | None, Token[contexts.Context]] | None = None


class StoreSpans:
    """Makes spans of store operations. It subscribes to store events only while something is recorded."""

    def __init__(self, tracer: Tracer, events: Events) -> None:
        self._tracer = tracer
        self._events = events
        self._lock = threading.Lock()
        self._recorded = 0
        self._unsubscribe: Callable[[], None] | None = None

    def enter(self) -> None:
        """Count one more recorded request or job."""
        with self._lock:
            self._recorded += 1
            if self._unsubscribe is None:
                self._unsubscribe = self._events.subscribe(self._record, "store")

    def leave(self) -> None:
        """Count one less."""
        with self._lock:
            self._recorded -= 1
            if not self._recorded and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None

    def _record(self, event: Event) -> None:
        if not trace.get_current_span().is_recording():
            return
        fields = event.fields
        end = time_ns()
        span = self._tracer.start_span(
            f"{fields['kind']} {fields['store']}",
            kind=SpanKind.CLIENT,
            attributes={
                "plughost.plugin": event.plugin or "",
                "plughost.store": fields["store"],
                "plughost.store.kind": fields["kind"],
                "plughost.store.outcome": fields["outcome"],
                "plughost.store.waited": fields.get("waited", 0.0),
            },
            start_time=end - int(fields["seconds"] * 1e9),
        )
        if fields["outcome"] not in ("ok", "undone"):
            span.set_status(StatusCode.ERROR)
        span.end(end)


class JobSpans:
    """Makes spans of jobs."""

    def __init__(self, tracer: Tracer, stores: StoreSpans, sample: float) -> None:
        self._tracer = tracer
        self._stores = stores
        self._sample = sample
        self._thread = _Thread()

    def __call__(self, event: Event) -> None:
        """Start or end a job's span."""
        if event.name == "job_started":
            self._begin(event)
        elif self._thread.job is not None:
            span, token = self._thread.job
            self._thread.job = None
            if span is not None:
                self._end(span, event)
            contexts.detach(token)

    def _begin(self, event: Event) -> None:
        span, context = None, UNSAMPLED
        if is_sampled(self._sample):
            job = event.fields["job"]
            attributes = {"plughost.plugin": event.plugin or "", "plughost.job": job}
            span = self._tracer.start_span(f"job {job}", contexts.Context(), attributes=attributes)
            context = trace.set_span_in_context(span, contexts.Context())
            if span.is_recording():
                self._stores.enter()
            else:
                span = None
        self._thread.job = span, contexts.attach(context)

    def _end(self, span: Span, event: Event) -> None:
        span.set_attribute("plughost.job.outcome", event.fields["outcome"])
        if event.fields["outcome"] == "failed":
            span.set_status(StatusCode.ERROR, event.fields["error"])
        span.end()
        self._stores.leave()


def is_sampled(fraction: float) -> bool:
    """Return whether to sample: true for a random fraction of the calls."""
    return random.random() < fraction  # noqa: S311 - sampling needs no secure randomness  # nosec B311
