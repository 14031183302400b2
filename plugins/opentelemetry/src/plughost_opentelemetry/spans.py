"""Spans for store operations and jobs, from the events of the host, which come in the thread that does them."""

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
    """Stands for all that nobody records: each time it is asked, it begins a trace that tells so to who is called.

    Attributes:
        hosts: How many trace in this process; while none does, it begins nothing.
    """

    hosts = 0

    def get_span_context(self) -> SpanContext:
        if not self.hosts:
            return trace.INVALID_SPAN_CONTEXT
        return SpanContext(_ids.generate_trace_id(), _ids.generate_span_id(), is_remote=False)


UNSAMPLED_SPAN: Final = _Unsampled(trace.INVALID_SPAN_CONTEXT)
UNSAMPLED: Final = trace.set_span_in_context(UNSAMPLED_SPAN, contexts.Context())
"""The context of what isn't sampled; one for all, since a request must not pay for what nobody looks at."""


class _Thread(threading.local):
    """The job that this thread runs: its span, if it is sampled."""

    job: tuple[Span | None, Token[contexts.Context]] | None = None


class StoreSpans:
    """Makes spans of store operations, and lets stores tell of them only while something is recorded."""

    def __init__(self, tracer: Tracer, events: Events) -> None:
        """Make spans with a tracer."""
        self._tracer = tracer
        self._events = events
        self._lock = threading.Lock()
        self._recorded = 0
        self._unsubscribe: Callable[[], None] | None = None

    def enter(self) -> None:
        """Begin to record something."""
        with self._lock:
            self._recorded += 1
            if self._unsubscribe is None:
                self._unsubscribe = self._events.subscribe(self._take, "store")

    def leave(self) -> None:
        """Record it no more."""
        with self._lock:
            self._recorded -= 1
            if not self._recorded and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None

    def _take(self, event: Event) -> None:
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
    """Turns the events of jobs into spans."""

    def __init__(self, tracer: Tracer, stores: StoreSpans, sample: float) -> None:
        """Make spans with a tracer, of a part of the jobs."""
        self._tracer = tracer
        self._stores = stores
        self._sample = sample
        self._thread = _Thread()

    def __call__(self, event: Event) -> None:
        """Take an event."""
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
        if chosen(self._sample):
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


def chosen(part: float) -> bool:
    """Tell whether to sample, which is so in a part of all calls."""
    return random.random() < part  # noqa: S311 - what is traced is no secret  # nosec B311
