"""The access log: requests are recorded on the request path, and a thread writes their lines."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plughost._api.events import code_of
from plughost._logging import LineWriter, format_timestamp
from plughost.http._response import WrappedStream, stream_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    import falcon
    import structlog

    from plughost.http._request import Request

_LOGGER: Final = logging.getLogger("plughost._runtime")
_WRITE_INTERVAL: Final = 0.02  # seconds
_MAX_LINES: Final = 4096  # requests
_LINE_FIELD_COUNT: Final = 11  # of each request


class AccessLog:
    """Logs a line for each request, when its response is complete.

    It is the host's outermost Falcon middleware. It skips a request whose context has a true attribute `unlogged`,
    such as the polling of a page.

    To write each line at once would take a third of a small request's time, since another thread takes the interpreter
    during the system call. So a thread writes every 20 ms, in each request's own context; with a longer interval,
    requests would wait for larger batches. When 4,096 requests are pending, the next request writes them itself, so it
    waits for a slow reader of the log.
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
            resp.stream = WrappedStream(stream, stream_parts(stream), lambda: self._record(req, resp))
        else:
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
                    writer = threading.Thread(target=self._run_writer, name="plughost-access-log", daemon=True)
                    try:
                        writer.start()
                        self._is_writer_running = True
                    except RuntimeError:  # the system allows no further thread: the next request tries again
                        self.write()
        elif len(self._pending) >= _MAX_LINES * _LINE_FIELD_COUNT:
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
            contexts = pending[_LINE_FIELD_COUNT - 1 :: _LINE_FIELD_COUNT]
            lines = [_line(*each) for each in zip(*[iter(pending)] * _LINE_FIELD_COUNT, strict=True)]
            logger = self._logger.bind()  # once: the lazy logger of `make_logger` would bind again at each call
            writer = getattr(logger, "_logger", None)  # structlog's documented place of the wrapped logger
            if (
                isinstance(writer, LineWriter)
                and logger.is_enabled_for(logging.INFO)
                and writer.write_json(lines, contexts)
            ):
                return
            failures = []
            for line, context in zip(lines, contexts, strict=True):
                try:
                    context.run(logger.info, **msgspec.to_builtins(line, enc_hook=str))
                except Exception as error:  # noqa: BLE001 - the other lines are written before any error is raised
                    failures.append(error)
            if failures:
                raise failures[0]


class _Line(msgspec.Struct, tag_field="event", tag="request", omit_defaults=True, gc=False):
    """A line of the access log: an event of the log, as quick to make and to encode as can be."""

    method: str
    path: str
    status: int
    ms: float
    plugin: str | None
    client: str | None
    http: str | None
    request_id: str
    level: str
    timestamp: str
    trace_id: str | None = None


def _line(*fields: Any) -> _Line:
    now, seconds, method, target, status, mounted, client, protocol, request_id, trace_id, _ = fields
    return _Line(
        method,
        target.partition("?")[0],
        code_of(status),
        int(seconds * 100_000 + 0.5) / 100,  # a third of the time of `round`
        None if mounted is None else mounted.plugin,
        client,
        protocol,
        request_id,
        "info",
        format_timestamp(now),
        trace_id,
    )
