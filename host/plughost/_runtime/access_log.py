"""The access log: each request is recorded on the request path; a thread writes the lines."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from contextvars import Context, copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plughost._api.events import code_of
from plughost._logging import LineWriter, format_timestamp
from plughost.http._request import FAILED
from plughost.http._response import WrappedStream, stream_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    import falcon
    import structlog

    from plughost.http._request import Request

_LOGGER: Final = logging.getLogger("plughost._runtime")
_WRITE_INTERVAL: Final = 0.02  # seconds
_MAX_PENDING: Final = 4096  # requests
_FIELD_COUNT: Final = 11  # of each request


class AccessLog:
    """Logs a line for each request, when its response is complete.

    It is the host's outermost Falcon middleware. It skips a request whose context has a true attribute `unlogged`,
    such as the polling of a page.

    To write each line at once would take a third of a small request's time, since another thread takes the interpreter
    during the system call. So a thread writes every 20 ms, in each request's own context; with a longer interval,
    requests would wait for larger batches. When 4,096 requests are pending, the next request writes them itself, so it
    waits for a slow reader of the log. Fields are stored flat: see `RequestLog`.
    """

    def __init__(self, logger: structlog.stdlib.BoundLogger, join: Callable[[], object]) -> None:
        """Log to a logger. The writer thread calls `join` first."""
        self._join = join
        self._logger = logger
        self._pending: list[Any] = []
        self._write_lock = threading.Lock()
        self._writer_lock = threading.Lock()
        self._is_writer_running = False

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Record the response; a stream, when it has been sent."""
        if getattr(req.context, "unlogged", False):
            return
        if resp.stream is not None:
            stream = resp.stream
            resp.stream = WrappedStream(stream, stream_parts(stream), lambda: self._record_stream(req, resp))
        else:
            self._record(req, resp)

    def _record_stream(self, req: Request, resp: falcon.Response) -> None:
        if FAILED not in req.env:  # else an error response replaced it, and was recorded
            self._record(req, resp)

    def _record(self, req: Request, resp: falcon.Response) -> None:
        environ = req.env
        self._pending += (
            time.time(),
            perf_counter() - req.arrived,
            req.method,
            environ.get("REQUEST_URI") or req.path,
            resp.status,
            req.mounted,
            environ.get("REMOTE_ADDR"),
            environ.get("SERVER_PROTOCOL"),
            req.request_id,
            req.trace_id,
            copy_context(),
        )
        if not self._is_writer_running:
            with self._writer_lock:
                if not self._is_writer_running:
                    self._is_writer_running = True
                    threading.Thread(target=self._run_writer, name="plughost-access-log", daemon=True).start()
        elif len(self._pending) >= _MAX_PENDING * _FIELD_COUNT:
            self.write()

    def _run_writer(self) -> None:
        """Write at intervals until nothing is pending."""
        self._join()
        while True:
            time.sleep(_WRITE_INTERVAL)
            self.write()
            with self._writer_lock:
                if not self._pending:
                    self._is_writer_running = False
                    return

    def write(self) -> None:
        """Write the pending requests. Never raises."""
        try:
            self._write()
        except Exception:
            with suppress(Exception):  # a subscriber to the log may fail on this line, too
                _LOGGER.exception("some requests were not logged")

    def _write(self) -> None:
        with self._write_lock:
            pending = self._pending[:]
            del self._pending[: len(pending)]
            if not pending:
                return
            events = [_event(*each) for each in zip(*[iter(pending)] * _FIELD_COUNT, strict=True)]
            logger = self._logger.bind()  # once: the lazy logger of `make_logger` would bind again at each call
            writer = getattr(logger, "_logger", None)  # structlog's documented place of the wrapped logger
            if isinstance(writer, LineWriter) and logger.is_enabled_for(logging.INFO) and writer.write_json(events):
                return
            failures = []
            for context, event in events:
                try:
                    context.run(logger.info, **event)
                except Exception as error:  # noqa: BLE001 - the other events are written before any error is raised
                    failures.append(error)
            if failures:
                raise failures[0]


def _event(*fields: Any) -> tuple[Context, dict[str, Any]]:
    now, seconds, method, target, status, mounted, client, protocol, request_id, trace_id, context = fields
    event = {
        "event": "request",
        "method": method,
        "path": target.partition("?")[0],
        "status": code_of(status),
        "ms": round(seconds * 1000, 2),
        "plugin": None if mounted is None else mounted.plugin,
        "client": client,
        "http": protocol,
        "request_id": request_id,
    }
    if trace_id is not None:
        event["trace_id"] = trace_id
    event["level"] = "info"
    event["timestamp"] = format_timestamp(now)
    return context, event
