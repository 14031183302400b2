"""The log: structured lines, readable on a terminal and JSON otherwise."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache, partial
from select import PIPE_BUF
from time import gmtime, strftime, time
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import msgspec

from plughost._api.events import Event, Events
from plughost._tracebacks import own_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextvars import Context

    import structlog

    from plughost._settings.models import LogSettings


_STRUCTLOG: Final = "structlog_"  # what the names of its context variables begin with
_CHUNK: Final = 64 * 1024


class _Thread(threading.local):
    """What this thread does: the id of the request that it answers, and of which events a person is told otherwise."""

    request_id: str | None = None
    reports: tuple[str, ...] = ()


this_thread: Final = _Thread()


@contextmanager
def reported(*events: str) -> Iterator[None]:
    """Leave out of this thread's log, where a person reads it, what the person is told of these events otherwise."""
    this_thread.reports = events
    try:
        yield
    finally:
        this_thread.reports = ()


def make_logger(
    settings: LogSettings, stream: TextIO | None = None, lines: Events | None = None
) -> structlog.stdlib.BoundLogger:
    """Make a host's logger; it is the host's own, nothing global is configured.

    Args:
        settings: The table `[log]`.
        stream: Where lines go; standard error by default.
        lines: Told of each line, too, while somebody watches: an event `line` with what was logged.
    """
    import structlog  # noqa: PLC0415 - brings rich, and most commands log nothing

    stream = sys.stderr if stream is None else stream
    as_text = is_text(settings, stream)
    render: list[Any] = (
        # Plain tracebacks: the default shows the local variables of every frame, passwords and tokens among them.
        [
            _without_report,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            _without_nothing,
            _from_the_plugin_on,
            structlog.dev.ConsoleRenderer(
                0,  # no padding after the event; the argument's name differs between versions
                colors=stream.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
                pad_level=False,
                sort_keys=False,
            ),
        ]
        if as_text
        else [partial(_to_line, structlog.processors.format_exc_info)]
    )
    processors = [
        structlog.contextvars.merge_contextvars,
        _of_request,
        structlog.processors.add_log_level,
        *([partial(_tell, lines)] if lines is not None else []),
        *render,
    ]
    logger = structlog.wrap_logger(
        Lines(stream, processors, is_json=not as_text, told=lines),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.level.upper())),
        cache_logger_on_first_use=True,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def is_text(settings: LogSettings, stream: TextIO) -> bool:
    """Tell whether a log to a stream is for a person to read, and not JSON."""
    return settings.format == "text" or (settings.format == "auto" and stream.isatty())


def silent_logger() -> structlog.stdlib.BoundLogger:
    """Make a logger that writes nothing, for looking at a host without running it."""
    return cast("structlog.stdlib.BoundLogger", _Silence())


class _Silence:
    """A structured logger that writes nothing: whatever is called of it returns it."""

    def __getattr__(self, name: str) -> Callable[..., _Silence]:
        return lambda *_, **__: self


class Lines:
    """Writes lines to a stream, each with one call to the system, which keeps those of several threads apart.

    There is no lock around it: other threads run while the system writes, so those that log would soon wait for that
    lock, and the switches of threads would take longer than all else that a line does.

    Failures are ignored: a full disk, or a closed pipe, must not fail the request that is logged.
    """

    def __init__(self, stream: TextIO, processors: list[Any], *, is_json: bool, told: Events | None) -> None:
        self._is_json, self._told = is_json, told
        self._stream = stream
        self._encoding = stream.encoding or "utf-8"
        self._together = _bytes_together(stream)
        self._processors = processors

    def write(self, line: str) -> None:
        """Write a line, or several that are joined."""
        try:
            try:
                descriptor = self._stream.fileno()
            except io.UnsupportedOperation:  # it is kept in memory
                self._stream.write(f"{line}\n")
            else:
                os.write(descriptor, f"{line}\n".encode(self._encoding, "backslashreplace"))
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = write

    def write_events(self, events: Sequence[tuple[Context, dict[str, Any]]]) -> None:
        """Write complete events of the level info, each as in its context, several with one call to the system."""
        is_plain = self._is_json and not (self._told is not None and self._told.watched)
        if is_plain and not any(name.name.startswith(_STRUCTLOG) for context, _ in events for name in context):
            self._write_json([event for _, event in events])
            return
        failures = []
        for context, event in events:
            try:
                context.run(self._write_event, event)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are written first
                failures.append(error)
        if failures:
            raise failures[0]

    def _write_json(self, events: list[dict[str, Any]]) -> None:
        try:
            lines = _encode_lines(events)
        except _UNFIT:
            lines = "".join(f"{_as_text(event)}\n" for event in events).encode()
        begin = 0
        while begin < len(lines):
            end = lines.rfind(b"\n", begin, begin + self._together)
            if end < 0:
                end = lines.index(b"\n", begin)
            self.write(lines[begin:end].decode())
            begin = end + 1

    def _write_event(self, event: Any) -> None:
        """Write an event: what structlog does, without the steps that find out what level it has."""
        for process in self._processors:
            event = process(None, "info", event)
        self.write(event)


def _bytes_together(stream: TextIO) -> int:
    """Return how many bytes of lines are written with one call: a pipe lets others' lines in between if it is more."""
    try:
        return _CHUNK if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else PIPE_BUF
    except (OSError, ValueError):  # it is kept in memory, or closed
        return PIPE_BUF


class Bridge(logging.Handler):
    """Hands what libraries write to Python's `logging` to a structured logger."""

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        """Hand it to a logger."""
        super().__init__()
        self._target = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record."""
        level = "critical" if record.levelno >= logging.CRITICAL else record.levelname.lower()
        log = getattr(self._target, level, self._target.info)
        log(record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _tell(lines: Events, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Tell whoever watches of a line."""
    if lines.watched:
        lines.publish(Event("line", event.get("plugin"), dict(event)))
    return event


def _of_request(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add which request a line is of, whoever writes it."""
    if this_thread.request_id is not None:
        event.setdefault("request_id", this_thread.request_id)
    return event


def _without_report(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave out what a person is told otherwise; tracebacks and what is audited are in the log alone."""
    import structlog  # noqa: PLC0415 - see make_logger

    if event["event"] not in this_thread.reports:
        return event
    if event["event"] != "audit" and "exception" not in event:
        raise structlog.DropEvent
    return {key: value for key, value in event.items() if key != "reason"}


def _from_the_plugin_on(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show a traceback of a plugin from its own code on: how the host came there helps nobody to mend it."""
    trace = event.get("exception")
    return {**event, "exception": own_frames(trace)} if isinstance(trace, str) else event


def _without_nothing(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave out what is None: to a person it says nothing."""
    return {key: value for key, value in event.items() if value is not None}


def _to_line(
    format_error: Callable[..., MutableMapping[str, Any]], logger: object, method: str, event: MutableMapping[str, Any]
) -> str:
    """Return an event as a line, in one step: structlog's own three take twice as long."""
    event.setdefault("timestamp", moment(time()))
    if "exc_info" in event:
        event = format_error(logger, method, event)
    try:
        return _encode(event).decode()
    except _UNFIT:
        return _as_text(event)


def _as_text(event: Mapping[str, Any]) -> str:
    return json.dumps({str(key): str(value) for key, value in event.items()})


def moment(now: float) -> str:
    """Return a time, in seconds of the epoch, as the log writes it."""
    return f"{_second(int(now))}.{int(now % 1 * 1_000_000):06}Z"


@lru_cache(1)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


_UNFIT: Final = (UnicodeEncodeError, OverflowError, TypeError, ValueError)  # lone surrogates, giant numbers, odd keys
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_encode_lines: Final = msgspec.json.Encoder(enc_hook=str).encode_lines
