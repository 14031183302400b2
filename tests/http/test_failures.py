"""Whatever goes wrong in a resource is a 500 for the client, the log and observers, like an exception."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import falcon
import httpx
import pytest
import structlog
from tests.http.reached import Logged, is_problem
from tests.http.table import route

from plughost import Middleware, Observer, RouteGroup, hookimpl
from plughost._logging import Bridge, make_logger
from plughost._settings.models import LogSettings
from plughost.stores import Unavailable
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lanes import Lane

    from plughost import PluginContext, RequestKind

ID = "find-me"


def late(*parts: Any, error: BaseException | None = None) -> Iterator[Any]:
    """Yield parts, then raise."""
    yield from parts
    raise error or ValueError("internal secret")


def give(resp: falcon.Response, **values: Any) -> None:
    """Set attributes of a response."""
    for name, value in values.items():
        setattr(resp, name, value)


def fail(error: BaseException) -> None:
    """Raise."""
    raise error


Do = Callable[[Any], object]

FAILURES: dict[str, Do] = {
    "exits": lambda resp: fail(SystemExit(1)),
    "is interrupted": lambda resp: fail(KeyboardInterrupt()),
    "ends as a generator": lambda resp: fail(GeneratorExit()),
    "is cancelled": lambda resp: fail(asyncio.CancelledError()),
    "streams an error": lambda resp: give(resp, stream=late()),
    "streams an error after nothing": lambda resp: give(resp, stream=late(b"")),
    "streams an exit": lambda resp: give(resp, stream=late(error=SystemExit(1))),
    "streams an error of known length": lambda resp: resp.set_stream(late(), 1000),
    "streams text": lambda resp: give(resp, stream=iter(["abc"])),
    "streams a list with text": lambda resp: give(resp, stream=[b"abc", "def"]),
    "streams a text file": lambda resp: give(resp, stream=io.StringIO("abc")),
    "streams a bytearray": lambda resp: give(resp, stream=iter([bytearray(b"abc")])),
    "streams a memoryview": lambda resp: give(resp, stream=iter([memoryview(b"abc")])),
    "streams numbers": lambda resp: give(resp, stream=iter([1, 2])),
    "answers text as data": lambda resp: give(resp, data="abc"),
    "answers a bytearray": lambda resp: give(resp, data=bytearray(b"abc")),
    "answers a number": lambda resp: give(resp, data=1),
    "answers media as plain text": lambda resp: give(resp, media="abc"),
    "answers a number as text": lambda resp: give(resp, text=1),
    "names a header with a space": lambda resp: resp.set_header("X A:", "1"),
    "breaks a header's line": lambda resp: resp.set_header("X-A", "1\r\nX-B: 2"),
    "has a header beyond Latin-1": lambda resp: resp.set_header("X-A", "€"),
    "ends with 100": lambda resp: give(resp, status=100),
    "ends with 101": lambda resp: give(resp, status="101 Switching Protocols"),
    "ends with no status": lambda resp: give(resp, status="fine"),
}

LATE: dict[str, Do] = {
    "error": lambda resp: give(resp, stream=late(b"abc")),
    "exit": lambda resp: give(resp, stream=late(b"abc", error=SystemExit(1))),
    "text": lambda resp: give(resp, stream=iter([b"abc", "def", b"ghi"])),
}


class Does:
    """Does what the test chooses."""

    do: Do

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Call the test's function."""
        resp.content_type = "text/plain"
        self.do(resp)


class Plugin:
    """Mounts the resource, and records its requests."""

    def __init__(self) -> None:
        """Store the resource for the tests."""
        self.does = Does()
        self.codes: list[int] = []
        self.counted: list[int] = []
        self.passed: list[int] = []

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: object, succeeded: bool) -> None:
        """Record that a response passes the plugin's middleware."""
        self.passed.append(resp.status_code)

    @hookimpl
    def register_middleware(self, context: PluginContext[Any]) -> list[Middleware]:
        """Mount that around all plugins."""
        return [Middleware(name="sees", component=self, scope="host")]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/does", routes=(route("", self.does),))]

    @hookimpl
    def register_observers(self, context: PluginContext[Any]) -> list[Observer]:
        """Record the status of each request, and of each counted one."""

        def count(times: Mapping[RequestKind, Sequence[float]]) -> None:
            self.counted += [kind.code for kind, seconds in times.items() for _ in seconds]

        return [
            Observer(
                name="seen",
                observe=lambda records: self.codes.extend(record.code for record in records),
                observe_times=count,
            )
        ]


@dataclass
class Served:
    """A host on an engine."""

    host: RunningHost
    plugin: Plugin
    logged: Logged


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Served]]:
    """A host on each engine, with an access log."""
    with ExitStack() as stack:
        running = {}
        for engine in ("waitress", "granian"):
            plugin, logged = Plugin(), []  # type: tuple[Plugin, Logged]

            def keep(logger: object, method: str, event: Any, logged: Logged = logged) -> Any:
                logged.append({**event, "level": method})
                raise structlog.DropEvent

            host = stack.enter_context(
                running_host(
                    distributions=[plugin_distribution("does", plugin)],
                    settings={"sites": {"main": {"http_engine": engine}}, "log": {"access": True}},
                    logger=structlog.wrap_logger(structlog.ReturnLogger(), processors=[keep]),
                )
            )
            running[engine] = Served(host, plugin, logged)
        yield running


@pytest.fixture
def served(lane: Lane, hosts: dict[str, Served]) -> Served:
    """The host of the lane, without records."""
    found = hosts[lane.engine]
    found.host.host.request_log.access.write()
    found.host.host.request_log.catch_up()
    for noted in (found.logged, found.plugin.codes, found.plugin.counted, found.plugin.passed):
        noted.clear()
    return found


@pytest.fixture
def client(lane: Lane, served: Served) -> Iterator[httpx.Client]:
    """A client on the lane, whose requests have an id."""
    with served.host.client(scheme=lane.scheme, http2=lane.http2) as opened:
        opened.headers["X-Request-ID"] = ID
        yield opened


@pytest.mark.parametrize("do", FAILURES.values(), ids=FAILURES)
def test_a_failure_of_any_kind_is_a_500_everywhere(client: httpx.Client, served: Served, do: Do) -> None:
    """Body, access line, error line and observers have the same status and request id, once each."""
    served.plugin.does.do = do
    answer = client.get("/does")
    problem = is_problem(answer, 500)
    assert (ID in problem["detail"], answer.headers["X-Request-ID"]) == (True, ID)
    assert "secret" not in answer.text
    served.host.host.request_log.access.write()
    served.host.host.request_log.catch_up()
    lines = [(line["event"], line["plugin"], line["request_id"], line.get("status")) for line in served.logged]
    assert sorted(lines) == [("request", "does", ID, 500), ("unhandled exception", "does", ID, None)]
    assert [isinstance(line["exc_info"], Exception) for line in served.logged if "exc_info" in line] == [True]
    assert (served.plugin.codes, served.plugin.counted) == ([500], [500])


@pytest.mark.parametrize(
    ("error", "status", "kept"),
    [
        (ValueError(), 500, None),
        (Unavailable("gone"), 503, None),
        (falcon.HTTPPreconditionFailed(), 412, '"tag"'),  # raised on purpose
    ],
)
def test_a_failure_has_no_header_of_a_result(
    client: httpx.Client, served: Served, error: Exception, status: int, kept: str | None
) -> None:
    """Caches must not keep the failure of a resource, and no client could decode its body."""
    of_body = {"Content-Encoding": "gzip", "Content-Range": "bytes 0-1/9", "Content-Disposition": "attachment"}
    result = {"ETag": '"tag"', "Location": "/does", "Expires": "0", "Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"}

    def do(resp: falcon.Response) -> None:
        resp.set_headers({**of_body, **result, "Cache-Control": "max-age=9", "Vary": "Cookie"})
        raise error

    served.plugin.does.do = do
    answer = client.get("/does")
    is_problem(answer, status)
    assert not [name for name in of_body if name in answer.headers]
    assert [name for name in result if name in answer.headers] == ([*result] if kept else [])
    assert (answer.headers.get("ETag"), "Cookie" in answer.headers["Vary"]) == (kept, True)
    assert ("max-age" in answer.headers.get("Cache-Control", "")) == (kept is not None)


@pytest.mark.parametrize("what", ["exits", "streams an error", "names a header with a space"])
def test_a_failure_has_one_id_if_the_client_sent_none(client: httpx.Client, served: Served, what: str) -> None:
    """The resource's log lines, the error line, the access line and the body have the same id."""
    served.plugin.does.do = FAILURES[what]
    del client.headers["X-Request-ID"]
    answer = client.get("/does")
    given = answer.headers["X-Request-ID"]
    served.host.host.request_log.access.write()
    assert [line["request_id"] for line in served.logged] == [given, given]
    assert given in is_problem(answer, 500)["detail"]


@pytest.mark.parametrize(("error", "status"), [(Unavailable("gone"), 503), (falcon.HTTPGone(), 410)])
def test_a_stream_that_fails_before_it_begins_is_answered_with_its_error(
    client: httpx.Client, served: Served, error: Exception, status: int
) -> None:
    """An error with its own status keeps it as long as nothing was sent: an unreachable store is 503."""
    served.plugin.does.do = lambda resp: give(resp, stream=late(error=error))
    is_problem(client.get("/does"), status)
    served.host.host.request_log.catch_up()
    assert served.plugin.codes == [status]


def test_a_stream_that_fails_before_it_begins_passes_middleware_once(client: httpx.Client, served: Served) -> None:
    """The error has no header of the body that was not sent."""

    def do(resp: falcon.Response) -> None:
        resp.set_headers({"ETag": '"1"', "Content-Disposition": "attachment", "Cache-Control": "max-age=60"})
        resp.stream = late()

    served.plugin.does.do = do
    answer = client.get("/does")
    is_problem(answer, 500)
    assert {"etag", "content-disposition", "cache-control"}.isdisjoint(answer.headers)
    assert served.plugin.passed == [500]


def test_a_stream_beside_a_body_is_not_begun(client: httpx.Client, served: Served) -> None:
    """The body is sent, as by Falcon."""
    served.plugin.does.do = lambda resp: give(resp, data=b"abc", stream=late())
    answer = client.get("/does")
    assert (answer.status_code, answer.content) == (200, b"abc")


def test_a_line_that_a_stream_logs_has_the_request_id(client: httpx.Client, served: Served) -> None:
    """It belongs to the request, as what the responder logs does."""
    logger = make_logger(LogSettings(format="json"), stream := io.StringIO())

    def parts() -> Iterator[bytes]:
        for part in (b"abc", b"def"):
            logger.warning("sends")
            yield part

    served.plugin.does.do = lambda resp: give(resp, stream=parts())
    assert client.get("/does").content == b"abcdef"
    assert stream.getvalue().count(f'"request_id":"{ID}"') == 2


@pytest.mark.parametrize("do", LATE.values(), ids=LATE)
def test_a_stream_that_fails_later_is_cut_off_and_logged_with_its_plugin(
    client: httpx.Client, served: Served, do: Do
) -> None:
    """No client takes it for complete, and the line with the traceback has the plugin and the request id."""
    stream = io.StringIO()
    bridge, logger = Bridge(make_logger(LogSettings(format="json"), stream)), logging.getLogger("plughost._servers")
    logger.addHandler(bridge)
    served.plugin.does.do = do
    try:
        with pytest.raises(httpx.TransportError):
            client.get("/does")
    finally:
        logger.removeHandler(bridge)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert f'"request_id":"{ID}"' in lines[0]
    assert '"plugin":"does"' in lines[0]
    assert "Traceback" in lines[0]


def test_a_stream_is_recorded_when_it_begins(client: httpx.Client, served: Served) -> None:
    """A stream without errors is observed with its own status, even if HEAD sends nothing of it."""
    served.plugin.does.do = lambda resp: give(resp, stream=iter([b"abc"]))
    assert client.get("/does").content == b"abc"
    assert client.head("/does").status_code == 200
    served.host.host.request_log.catch_up()
    assert (served.plugin.codes, served.plugin.counted) == ([200, 200], [200, 200])
