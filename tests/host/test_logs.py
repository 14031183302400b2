"""Logs: one line for each event, whatever its values, and logging never raises."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import resource
import select
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import falcon
import falcon.testing
import pytest
import structlog
from tests.host.plugins import Plugin, Speaker, serving

from plughost import Operation, PluginContext, Route, RouteGroup, Store, hookimpl
from plughost._api.events import Event, Events
from plughost._logging import Bridge, make_logger, silent_logger
from plughost._runtime.access_log import AccessLog
from plughost._runtime.audit import Audit
from plughost._settings.models import LogSettings
from plughost.http import Request
from plughost.http._response import close_stream
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path


def test_a_hook_that_fails_while_the_host_serves_is_logged(tmp_path: Path) -> None:
    """The log names the plugin, the hook and the reason; the plugin continues to serve."""

    def started(context: object) -> None:
        raise LookupError("no lamp")

    log = (tmp_path / "log").open("w")
    logger = make_logger(LogSettings(format="json"), log)
    installed = [plugin_distribution("lamp", Plugin(started=started))]
    with log, running_host(distributions=installed, logger=logger):
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    failed = next(line for line in lines if line["event"] == "hook failed")
    assert (failed["plugin"], failed["reason"].partition(" at ")[0]) == ("lamp", "started: LookupError")
    assert "no lamp" in failed["exception"]


def test_a_plugin_that_does_not_serve_is_one_line(tmp_path: Path) -> None:
    """The line has the plugin's label, state, reason and, if there is one, the traceback, even of a migration."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("SELECT nonsense FROM nowhere;")
    store = Store(name="kept", migrations=tmp_path, tables=())
    installed = [
        plugin_distribution("import", ImportError("no lamp")),
        plugin_distribution("needy", Speaker("needy"), requires=["plughost-import"]),
        plugin_distribution("store", Plugin(register_stores=lambda context: [store])),
    ]
    log = (tmp_path / "log").open("w")
    with log, running_host(distributions=installed, logger=make_logger(LogSettings(format="json"), log)):
        lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    failures = [line for line in lines if line["event"] == "plugin does not serve"]
    assert [(line["plugin"], line["state"], line["reason"].partition(":")[0]) for line in failures] == [
        ("import (plughost-import 1.0)", "failed", "import"),
        ("needy (plughost-needy 1.0)", "blocked", "dependency"),
        ("store (plughost-store 1.0)", "failed", "store"),
    ]
    assert ["no lamp" in line.get("exception", "none") for line in failures] == [True, False, False]
    assert "exception" not in failures[1]


def test_lines_that_a_plugin_logs_have_the_request_id(tmp_path: Path) -> None:
    """They have the id that the client receives; lines logged outside of a request have none."""

    class Shop:
        def on_get(self, req: Request, resp: falcon.Response) -> None:
            context.logger.warning("supplier is slow")
            resp.media = None

        @hookimpl
        def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
            contexts.append(context)
            return [RouteGroup(prefix="/shop", routes=(Route("", self, {"GET": Operation(summary="Look")}),))]

    contexts: list[PluginContext[Any]] = []
    with (tmp_path / "log").open("w") as log:
        logger = make_logger(LogSettings(format="json"), log)
        with running_host(distributions=[plugin_distribution("shop", Shop)], logger=logger) as host:
            context = contexts[-1]
            with host.client() as client:
                given = client.get("/shop").headers["X-Request-ID"]
            context.logger.warning("closed")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    logged = {line["event"]: line.get("request_id") for line in lines if line.get("plugin") == "shop"}
    assert logged == {"supplier is slow": given, "closed": None}


class Broken(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        """Fail."""
        raise OSError("no space left on device")


@pytest.mark.parametrize("value", ["text", "\ud800", 2**80, {1: 2, (3, 4): 5}, object(), b"\xff", "a\nb", None])
@pytest.mark.parametrize("form", ["json", "text"])
def test_any_value_is_logged(form: str, value: object) -> None:
    """Lone surrogates, giant numbers and unknown objects are logged like any other value, in JSON on one line."""
    stream = io.StringIO()
    make_logger(LogSettings(format=form), stream).info("event", value=value)
    assert "event" in stream.getvalue()
    if form == "json":
        assert json.loads(stream.getvalue())["event"] == "event"
        assert stream.getvalue().count("\n") == 1


def test_a_mistake_in_a_library_s_log_call_raises_nothing() -> None:
    """As with Python's own handlers, whoever logs goes on; the line names the call."""
    stream = io.StringIO()
    library = logging.Logger("library")
    library.addHandler(Bridge(make_logger(LogSettings(format="json"), stream)))
    library.warning("took %d ms", "many")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["logger"], "'took %d ms'" in line["event"]) == ("warning", "library", True)


def test_no_client_forges_or_hides_a_line_of_the_text_log() -> None:
    """Line breaks and terminal sequences in what clients send are escaped, wherever they are."""
    stream = io.StringIO()
    logger = make_logger(LogSettings(format="text"), stream)
    logger.error("GET /a\n04:05:06 [info] paid\x1b[2J failed", path="/\x1b[2J", reason="a\nb", word="Tée\\n")
    (line,) = stream.getvalue().splitlines()
    assert "\x1b" not in line
    assert "word=Tée\\n" in line


def test_an_exception_has_its_traceback() -> None:
    """The log shows where an exception was raised."""
    stream = io.StringIO()
    try:
        raise ValueError("why \ud800")
    except ValueError as error:
        make_logger(LogSettings(format="json"), stream).error("failed", exc_info=error)
    assert "test_logs.py" in json.loads(stream.getvalue())["exception"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_failing_stream_raises_nothing(form: str) -> None:
    """On a full disk or a closed stream, lines are lost, and logging raises nothing."""
    logger = make_logger(LogSettings(format=form), Broken())
    logger.info("event")
    closed = io.StringIO()
    closed.close()
    make_logger(LogSettings(format="json"), closed).info("event")


def test_a_closed_pipe_raises_nothing() -> None:
    """Lines to a closed pipe are lost, and logging raises nothing."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        make_logger(LogSettings(format="json"), pipe).info("event")


def test_lines_of_several_threads_are_whole(tmp_path: Path) -> None:
    """Lines that threads log at the same time are never mixed."""
    file = tmp_path / "log"
    with file.open("w", encoding="utf-8") as stream, ThreadPoolExecutor(8) as pool:
        logger = make_logger(LogSettings(format="json"), stream)
        list(pool.map(lambda number: logger.info("event", number=number, padding="\u00e4" * 1000), range(1000)))
    rows = [json.loads(row) for row in file.read_text("utf-8").splitlines()]
    assert sorted(row["number"] for row in rows) == list(range(1000))


def test_a_silent_logger_has_the_methods_of_any_logger() -> None:
    """A hook may bind values or log by any method during a preview."""
    silent_logger().bind(a=1).try_unbind("a").warn("event %s", 1, b=2)


def test_less_severe_lines_are_left_out() -> None:
    """The level is the lowest severity that is logged."""
    stream = io.StringIO()
    logger = make_logger(LogSettings(format="json", level="warning"), stream)
    logger.info("quiet")
    logger.warning("loud")
    assert [json.loads(row)["event"] for row in stream.getvalue().splitlines()] == ["loud"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_holds_no_local_variables(form: str) -> None:
    """Passwords and tokens may be in local variables; the log shows the place of an exception without them."""
    stream = io.StringIO()

    def log_in(password: str) -> None:
        raise ValueError("no such user")

    try:
        log_in("".join(["hun", "ter2"]))
    except ValueError as error:
        make_logger(LogSettings(format=form), stream).error("failed", exc_info=error)
    assert "no such user" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize(("form", "level", "lines"), [("json", "info", 1), ("text", "info", 1), ("json", "warning", 0)])
def test_a_request_is_a_line_of_the_level_info(form: Literal["json", "text"], level: str, lines: int) -> None:
    """It looks like any other line, although a faster path writes it, and the level filters it as well."""
    stream = io.StringIO()
    logger = make_logger(LogSettings.model_validate({"format": form, "level": level}), stream)
    speaker = plugin_distribution("speaker", Speaker("hi"))
    settings = {"log": {"access": True}}
    with running_host(settings=settings, distributions=[speaker], logger=logger) as host, host.client() as client:
        assert client.get("/say").status_code == 200
    rows = [row for row in stream.getvalue().splitlines() if "/say" in row]
    assert len(rows) == lines
    for row in rows if form == "json" else []:
        fields = json.loads(row)
        assert {"event": "request", "level": "info", "status": 200, "plugin": "speaker"}.items() <= fields.items()


class Bound:
    """Binds values for the log lines of its request."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Bind the header `X-Order`."""
        structlog.contextvars.bind_contextvars(order=req.get_header("X-Order"))
        resp.text = "told"

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Bind nothing."""
        structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("form", ["json", "text"])
def test_requests_are_logged_while_the_host_runs(form: Literal["json", "text"], tmp_path: Path) -> None:
    """Soon after the responses, each request has its line, with its own path, id and bound values."""
    file = tmp_path / "log"
    with file.open("w", encoding="utf-8") as stream:
        logger = make_logger(LogSettings(format=form), stream)
        plugin = plugin_distribution("told", serving(Bound(), "/told"))
        with running_host(settings={"log": {"access": True}}, distributions=[plugin], logger=logger) as host:
            with host.client() as client:
                for number in range(300):
                    headers = {"X-Request-ID": f"told-{number}", "X-Order": f"order-{number}"}
                    client.request("GET" if number % 2 else "POST", f'/told?q="{number}"', headers=headers)
            deadline = time.monotonic() + 20
            while file.read_text("utf-8").count("told-") < 300:
                assert time.monotonic() < deadline
    lines = [line for line in file.read_text("utf-8").splitlines() if "told-" in line]
    assert len(lines) == 300
    for number, row in enumerate(map(json.loads, lines) if form == "json" else ()):
        assert (row["request_id"], row["path"], row["status"]) == (f"told-{number}", "/told", 200)
        assert row.get("order") == (f"order-{number}" if number % 2 else None)


def test_a_stream_is_logged_once_it_is_sent() -> None:
    """Its line is written when the stream is closed, and not before."""
    stream = io.StringIO()
    log = AccessLog(make_logger(LogSettings(format="json"), stream), lambda: None)
    resp = falcon.Response()
    resp.stream = iter([b"part"])
    log.process_response(Request(falcon.testing.create_environ("/streamed")), resp, None, True)
    assert [*resp.stream] == [b"part"]
    log.write()
    assert stream.getvalue() == ""
    close_stream(resp.stream)
    log.write()
    assert json.loads(stream.getvalue())["path"] == "/streamed"


def test_a_request_has_its_time_in_milliseconds_even_among_odd_values() -> None:
    """A plugin may put what is no valid text into the environ."""
    stream = io.StringIO()
    log = AccessLog(make_logger(LogSettings(format="json"), stream), lambda: None)
    for client in ("192.0.2.1", "\ud800"):
        req = Request(falcon.testing.create_environ("/slow"))
        req.env["REMOTE_ADDR"], req.arrived = client, time.perf_counter() - 2.5
        log.process_response(req, falcon.Response(), None, True)
    log.write()
    for line, _ in zip(stream.getvalue().splitlines(), range(2), strict=True):
        row = json.loads(line)
        assert 2500 <= float(row["ms"]) < 250_000
        assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.\d{3}Z", row["timestamp"])


def test_every_request_is_logged(tmp_path: Path) -> None:
    """When too many lines are waiting, a request writes them itself."""
    file = tmp_path / "log"
    with file.open("w", encoding="utf-8") as stream:
        log = AccessLog(make_logger(LogSettings(format="json"), stream), lambda: None)
        req = Request(falcon.testing.create_environ("/noted"))
        for _ in range(10_000):
            log.process_response(req, falcon.Response(), None, True)
        assert len(log._pending) < 4097 * 11
        log.write()
    assert file.read_text("utf-8").count('"path":"/noted"') == 10_000


def test_a_request_that_cannot_be_logged_affects_no_other(tmp_path: Path) -> None:
    """A subscriber may fail, and a plugin may set an invalid status: the other requests are logged."""
    file = tmp_path / "log"
    lines = Events()

    def fail(event: Event) -> None:
        if event.fields.get("path") == "/bad":
            raise LookupError("who watches fails")

    with file.open("w", encoding="utf-8") as stream:
        log = AccessLog(make_logger(LogSettings(format="json"), stream, lines), lambda: None)
        odd = falcon.Response()
        odd.status = ["200 OK"]  # type: ignore[assignment] # as a plugin may
        unsubscribe = lines.subscribe(fail)
        for path in ("/before", "/bad", "/after"):
            log.process_response(Request(falcon.testing.create_environ(path)), falcon.Response(), None, True)
        log.write()
        unsubscribe()
        for resp in (odd, falcon.Response()):
            log.process_response(Request(falcon.testing.create_environ("/odd")), resp, None, True)
        log.write()
    rows = [json.loads(row) for row in file.read_text("utf-8").splitlines()]
    assert [(row["path"], row["status"]) for row in rows] == [
        ("/before", 200),
        ("/after", 200),
        ("/odd", 500),
        ("/odd", 200),
    ]


def test_lines_of_requests_are_whole_in_a_pipe() -> None:
    """Each write is as small as a pipe accepts in one piece, except a line that is longer by itself."""
    written: list[int] = []

    class Counting(io.StringIO):
        def write(self, text: str) -> int:
            written.append(len(text))
            return super().write(text)

    stream = Counting()
    log = AccessLog(make_logger(LogSettings(format="json"), stream), lambda: None)
    for number in range(100):
        path = "/" + "x" * (5000 if number == 50 else 3000 if number % 10 == 9 else 10)
        log.process_response(Request(falcon.testing.create_environ(path)), falcon.Response(), None, True)
    log.write()
    assert len(stream.getvalue().splitlines()) == 100
    *others, longest = sorted(written)
    assert max(others) <= select.PIPE_BUF < longest
    assert len(others) < 30


@pytest.mark.parametrize(("file", "warned"), [("missing/audit.jsonl", True), ("audit.jsonl", False)])
def test_an_audit_file_that_cannot_be_written_is_a_warning(tmp_path: Path, file: str, warned: bool) -> None:
    """The start warns, since the audit trail is then where nobody looks for it."""
    with running_host(distributions=[], settings={"log": {"audit": str(tmp_path / file)}}) as host:
        assert host.host.generation is not None
        warnings = [each for each in host.host.generation.warnings if each.startswith("log.audit: ")]
    assert len(warnings) == warned


def test_an_audit_event_is_in_the_file_as_a_whole_or_in_the_log(tmp_path: Path) -> None:
    """A disk that gets full within an event leaves no part of it, which would spoil the next one."""
    file, log = tmp_path / "audit.jsonl", io.StringIO()
    audit = Audit(make_logger(LogSettings(format="json"), log), tmp_path, file)
    audit.record("login", "ok", where="before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 20, limits[1]))
    try:
        audit.record("login", "ok", where="meanwhile")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    audit.record("login", "ok", where="after")
    assert [json.loads(line)["where"] for line in file.read_text().splitlines()] == ["before", "after"]
    failed, event = map(json.loads, log.getvalue().splitlines())
    assert (failed["event"], event["where"]) == ("the audit file can't be written", "meanwhile")


@pytest.mark.parametrize("text_format", ["json", "text"])
def test_the_journal_is_told_the_severity_of_each_line(
    tmp_path: Path, text_format: Literal["json", "text"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where standard error leads to systemd's journal, each line begins with its priority, whatever follows.

    A character that only Unicode takes for the end of a line doesn't end one.
    """
    with (tmp_path / "log").open("w") as log:
        found = os.fstat(log.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        logger = make_logger(LogSettings(format=text_format, level="debug"), log)
        for method in (logger.debug, logger.info, logger.warning, logger.critical):
            method("an event\u2028of one line")
        logger.error("it failed", exc_info=LookupError("no\n<0>lamp"))
        logger.info("it went on", exc_info=LookupError("no\n<0>lamp"))
    lines = (tmp_path / "log").read_text().removesuffix("\n").split("\n")
    assert [line[:3] for line in lines[:4]] == ["<7>", "<6>", "<4>", "<2>"]
    later = [line[:3] for line in lines[4:]]
    assert later == ["<3>"] * later.count("<3>") + ["<6>"] * later.count("<6>")
    assert later.count("<3>") == later.count("<6>")
