"""The access log: a line for each request, noted on the request path and written by a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from contextvars import Context, copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plughost._api.observed import code_of
from plughost._apps.streams import NotifyingStream
from plughost._logging import LineWriter, format_timestamp
from plughost.http._request import FAILED

if TYPE_CHECKING:
    from collections.abc import Callable

    import falcon
    import structlog

    from plughost.http._request import Request

_LOGGER: Final = logging.getLogger("plughost._runtime")
_SECONDS: Final = 0.02
_MOST: Final = 4096
_FIELDS: Final = 11


class AccessLog:
    """Logs a line for each request, when its response is complete.

    It is a Falcon middleware of the host, the outermost of all. A request whose context has a true attribute
    `unlogged` is left out: for what a page asks every second, say.

    A line written at once takes a third of a small request's time: each is a call to the system, in which another
    thread takes the interpreter. So lines are written together, a fiftieth of a second later at most, in the context
    that their request had. Later would be more at a time, for which requests wait. Where 4,096 wait, the next request
    writes them: a reader who stalls is waited for. What is noted stands in a list without structure: see `RequestLog`.
    """

    def __init__(self, logger: structlog.stdlib.BoundLogger, join: Callable[[], object]) -> None:
        """Log to a logger, from a thread that calls `join` first."""
        self._join = join
        self._logger = logger
        self._noted: list[Any] = []
        self._writing = threading.Lock()
        self._changing = threading.Lock()
        self._is_written = False  # by a thread that looks again in a format_timestamp

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Note the response; one that streams when it has been sent."""
        if getattr(req.context, "unlogged", False):
            return
        if resp.stream is not None:
            resp.stream = NotifyingStream(resp.stream, lambda: self._note_stream(req, resp))
        else:
            self._note(req, resp)

    def _note_stream(self, req: Request, resp: falcon.Response) -> None:
        if FAILED not in req.env:  # else an error was sent in its place, which is noted by itself
            self._note(req, resp)

    def _note(self, req: Request, resp: falcon.Response) -> None:
        environ = req.env
        self._noted += (
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
        if not self._is_written:
            self._begin()
        elif len(self._noted) >= _MOST * _FIELDS:
            self.write()

    def _begin(self) -> None:
        with self._changing:
            if not self._is_written:
                self._is_written = True
                threading.Thread(target=self._write_on, name="plughost-access-log", daemon=True).start()

    def _write_on(self) -> None:
        """Write until nothing is left; the life of a thread."""
        self._join()
        while True:
            time.sleep(_SECONDS)
            self.write()
            with self._changing:
                if not self._noted:
                    self._is_written = False
                    return

    def write(self) -> None:
        """Write what was noted so far. Never raises."""
        try:
            self._write()
        except Exception:
            with suppress(Exception):  # who watches the log may fail at this line, too
                _LOGGER.exception("some requests were not logged")

    def _write(self) -> None:
        with self._writing:
            noted = self._noted[:]
            del self._noted[: len(noted)]
            if not noted:
                return
            events = [_event(*each) for each in zip(*[iter(noted)] * _FIELDS, strict=True)]
            bound = self._logger.bind()  # what `make_logger` returns is bound anew by each use
            lines = getattr(bound, "_logger", None)  # where structlog keeps what it wraps, for classes of one's own
            if isinstance(lines, LineWriter) and bound.is_enabled_for(logging.INFO):
                lines.write_events(events)
            else:
                for context, event in events:
                    context.run(bound.info, **event)


def _event(*noted: Any) -> tuple[Context, dict[str, Any]]:
    """Return a request as it is logged, and its context."""
    now, seconds, method, target, status, mounted, client, protocol, request_id, trace_id, context = noted
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
