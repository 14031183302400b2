"""Traces that a collector receives from a running host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from opentelemetry import propagate, trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from plughost import Job, Operation, Route, RouteGroup, Store, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host
from plughost_opentelemetry.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import falcon

    from plughost import JobRun, PluginContext
    from plughost.stores import OpenStore

TRACER = trace.get_tracer("library")  # created before any host runs, as in libraries
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Span(NamedTuple):
    """A received span."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool


class Collector:
    """Receives traces as OTLP over HTTP."""

    def __init__(self) -> None:
        """Start without spans."""
        self.spans: list[Span] = []
        self.came = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.record(self.rfile.read(int(self.headers["Content-Length"])), self.headers["Content-Encoding"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def record(self, body: bytes, coding: str | None) -> None:
        """Record the spans of a request."""
        assert coding is None
        sent = ExportTraceServiceRequest.FromString(body)
        with self.came:
            for resource in sent.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += map(_span, scope.spans)
            self.came.notify_all()

    def named(self, name: str) -> Span:
        """Return the only span with this name."""
        (found,) = [each for each in self.spans if each.name == name]
        return found


def _span(span: Any) -> Span:
    attributes = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Span(span.name, *ids, attributes, span.status.code == 2)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector for one test."""
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


class Shelf:
    """Reads a store, and answers with the headers of a request to another service."""

    def __init__(self, store: OpenStore[Any]) -> None:
        """Store it."""
        self.store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer."""
        if name == "broken":
            raise ValueError(name)
        self.store.read(lambda session: session.row("SELECT 1"))
        with TRACER.start_as_current_span("search the shelf"):
            pass
        headers: dict[str, str] = {}
        propagate.inject(headers)
        resp.media = headers


class Library:
    """A plugin to trace."""

    def __init__(self, migrations: Path) -> None:
        """Declare a store."""
        (migrations / "sqlite").mkdir()
        (migrations / "sqlite" / "0001_begin.sql").write_text("SELECT 1;")
        self.store = Store(name="books", migrations=migrations, tables=())
        self.context: PluginContext[Any]

    @hookimpl
    def register_stores(self) -> list[Store]:
        """Store books."""
        return [self.store]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount the shelf."""
        self.context = context
        operation = Operation(summary="Show a book")
        return [
            RouteGroup(prefix="/books", routes=(Route("/{name}", Shelf(context.stores["books"]), {"GET": operation}),))
        ]

    @hookimpl
    def register_jobs(self, context: PluginContext[Any]) -> list[Job]:
        """Count the books every minute."""

        def count(run: JobRun) -> None:
            context.stores["books"].read(lambda session: session.row("SELECT 1"))
            with TRACER.start_as_current_span("count"):
                pass

        return [Job(name="count", run=count, every=60)]


@contextmanager
def _host(folder: Path, endpoint: str, hook_timeout: float = 30, **settings: Any) -> Iterator[RunningHost]:
    table = {"plugins": {"opentelemetry": {"endpoint": endpoint, **settings}}, "hook_timeout": hook_timeout}
    beside = [plugin_distribution("library", Library(folder))]
    with running_host(["opentelemetry"], beside=beside, settings=table, now=datetime(2026, 1, 1, tzinfo=UTC)) as host:
        yield host


def test_a_request_and_its_store_operation_are_part_of_the_callers_trace(collector: Collector, tmp_path: Path) -> None:
    """Trace contexts have the W3C format in both directions; spans name plugin, route, status and store."""
    with _host(tmp_path, collector.endpoint) as host, host.client() as client:
        sent = client.get("/books/one?secret=x", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).json()
    request, store = collector.named("GET /books/{name}"), collector.named("read books")
    assert (request.trace, request.parent, request.failed) == (TRACE, PARENT, False)
    assert (store.trace, store.parent) == (TRACE, request.id)
    assert sent == {"traceparent": f"00-{TRACE}-{request.id}-01"}
    wanted = {"plughost.plugin": "library", "http.route": "/books/{name}", "http.response.status_code": 200}
    assert wanted.items() <= request.attributes.items()
    assert request.attributes["url.path"] == "/books/one"
    assert (store.attributes["plughost.store"], store.attributes["plughost.store.outcome"]) == ("books", "ok")


def test_the_log_and_problem_details_name_the_trace(collector: Collector, tmp_path: Path) -> None:
    """A client can report an error by its trace id."""
    with _host(tmp_path, collector.endpoint) as host, host.client() as client:
        lines: list[Any] = []
        end = host.host.lines.subscribe(lines.append)
        problem = client.get("/books/broken").json()
        missing = client.get("/nowhere").json()
        end()
    request = collector.named("GET /books/{name}")
    assert problem["trace_id"] == request.trace
    assert [line.fields.get("trace_id") for line in lines] == [request.trace]
    assert request.failed
    assert missing["trace_id"] == collector.named("GET").trace


def test_a_run_of_a_job_has_its_own_trace(collector: Collector, tmp_path: Path) -> None:
    """It contains the job's store operations."""
    with _host(tmp_path, collector.endpoint) as host:
        host.advance(60)
        _until(lambda: host.host.view.jobs[0].runs == 1)
    job, store = collector.named("job count"), collector.named("read books")
    assert (store.trace, store.parent, job.parent) == (job.trace, job.id, "")
    assert job.attributes["plughost.job.outcome"] == "ok"


def test_unsampled_requests_are_not_recorded(collector: Collector, tmp_path: Path) -> None:
    """The caller's decision and the settings are respected; an unsampled context is passed on."""
    with _host(tmp_path, collector.endpoint, sample=1e-12) as host, host.client() as client:
        passed = client.get("/books/one", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}).json()
        chosen_here = client.get("/books/one").json()
        assert "trace_id" not in client.get("/books/broken").json()
        assert client.get("/books/one", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).status_code == 200
    assert passed["traceparent"].startswith(f"00-{TRACE}-")
    assert [each["traceparent"][-3:] for each in (passed, chosen_here)] == ["-00", "-00"]
    assert sorted(each.name for each in collector.spans) == ["GET /books/{name}", "read books", "search the shelf"]


def test_a_host_that_samples_nothing_starts_no_trace(collector: Collector, tmp_path: Path) -> None:
    """With `sample = 0` and no trace from the caller, the next service decides alone, and nothing is recorded."""
    with _host(tmp_path, collector.endpoint, sample=0) as host, host.client() as client:
        assert client.get("/books/one").json() == {}
        assert client.get("/books/one", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).json() != {}
    assert sorted(each.name for each in collector.spans) == ["GET /books/{name}", "read books", "search the shelf"]


@pytest.mark.parametrize("sample", [0, 1e-12])
def test_an_invalid_traceparent_is_as_good_as_none(collector: Collector, tmp_path: Path, sample: float) -> None:
    """A client can't make the host record a request with what begins no trace."""
    invalid = "", "x", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-x"
    with _host(tmp_path, collector.endpoint, sample=sample) as host, host.client() as client:
        passed = [client.get("/books/one", headers={"traceparent": each}).json() for each in invalid]
    assert collector.spans == []
    assert {each.get("traceparent", "")[-3:] for each in passed} == {"-00" if sample else ""}


def test_an_unsampled_job_sends_nothing(collector: Collector, tmp_path: Path) -> None:
    """This includes the spans of its store operations and libraries."""
    with _host(tmp_path, collector.endpoint, sample=0) as host:
        host.advance(60)
        _until(lambda: host.host.view.jobs[0].runs == 1)
    assert collector.spans == []


@pytest.mark.parametrize(("settings", "sampler"), [({"sample": 0}, ""), ({}, "always_off")])
def test_other_spans_are_sampled_like_requests_and_jobs(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sampler: str
) -> None:
    """Spans of a plugin's threads or of the start follow the settings, or OpenTelemetry's variables."""
    (tmp_path / "sampled").mkdir()
    with _host(tmp_path / "sampled", collector.endpoint), TRACER.start_as_current_span("outside"):
        pass
    assert [each.name for each in collector.spans] == ["outside"]
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    with _host(tmp_path, collector.endpoint, **settings) as host:
        with TRACER.start_as_current_span("outside") as span:
            assert not span.is_recording()
        host.advance(60)
        _until(lambda: host.host.view.jobs[0].runs == 1)
    assert [each.name for each in collector.spans] == ["outside"]


def test_spans_of_libraries_are_part_of_the_request(collector: Collector, tmp_path: Path) -> None:
    """The process's tracer sends to the running host, also after earlier hosts, and to none if no host runs."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        with _host(tmp_path / name, collector.endpoint) as host, host.client() as client:
            client.get(f"/books/{name}")
        assert not TRACER.start_span("nobody runs").is_recording()
    requests, own = (
        [each for each in collector.spans if each.name == name] for name in ("GET /books/{name}", "search the shelf")
    )
    assert [each.parent for each in own] == [each.id for each in requests]


def test_without_an_endpoint_requests_are_not_traced(tmp_path: Path) -> None:
    """The plugin may be installed everywhere: it mounts nothing and has no thread."""
    with _host(tmp_path, "") as host, host.client() as client:
        assert client.get("/books/one").json() == {}
        assert not any(site.middleware for site in host.host.view.sites.values())
        assert not host.host.events.watched
        assert not [each.name for each in threading.enumerate() if "Otel" in each.name]


@pytest.mark.parametrize(
    "endpoint", ["collector", "http://:80/", "http://[::1", "http://x:99999/", "http://x:0/", "http://a b"]
)
def test_a_malformed_endpoint_is_refused(endpoint: str) -> None:
    """No trace would ever arrive there: the settings are invalid."""
    with pytest.raises(ValueError, match="must be an http:// or https:// URL"):
        Settings(endpoint=endpoint)


def test_requests_do_not_wait_for_an_unreachable_collector(collector: Collector, tmp_path: Path) -> None:
    """They are answered, the host stops, and no thread of the plugin is left."""
    collector.server.server_close()
    with _host(tmp_path, "http://127.0.0.1:9/v1/traces") as host, host.client() as client:
        assert [client.get("/books/one").status_code for _ in range(20)] == [200] * 20
    _until(lambda: not [each.name for each in threading.enumerate() if "Otel" in each.name])


def test_a_stop_does_not_wait_for_a_collector_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that goes on for ever holds up the export, but no stop: the hook returns in time."""
    monkeypatch.setattr("plughost_opentelemetry.plugin._EXPORT_SECONDS", 1)
    ended = threading.Event()

    class Endless(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not ended.wait(0.1):
                self.wfile.write(b"x")

    lines: list[Any] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever).start()
    try:
        with _host(tmp_path, f"http://127.0.0.1:{server.server_port}/v1/traces", hook_timeout=10) as host:
            end = host.host.lines.subscribe(lines.append)
            with host.client() as client:
                assert client.get("/books/one").status_code == 200
        end()
        assert [line.fields for line in lines if line.fields["level"] == "error"] == []
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


def _until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 30
    while not condition():
        assert monotonic() < deadline, "the condition did not become true"
        threading.Event().wait(0.01)
