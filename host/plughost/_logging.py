"""The log: structured lines, as text on a terminal and as JSON otherwise."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import stat
import sys
from collections.abc import MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from select import PIPE_BUF
from time import gmtime, strftime, time
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import msgspec

from plughost._api.events import Event, Events
from plughost._controls import CONTROLS, escape_controls
from plughost._tracebacks import own_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextvars import Context

    import structlog

    from plughost._settings.models import LogSettings


_STRUCTLOG_PREFIX: Final = "structlog_"  # of its context variables
_FILE_BATCH_BYTES: Final = 64 * 1024
_EVENT_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("plughost_request_id", default=None)
"""The id of the request of this context, for its log lines."""


_SUPPRESSED: Final[ContextVar[tuple[str, ...]]] = ContextVar("plughost_suppressed", default=())


@contextmanager
def suppress_events(*events: str) -> Iterator[None]:
    """Leave events out of this thread's lines of a text log: the person who reads it is shown them otherwise."""
    token = _SUPPRESSED.set(events)
    try:
        yield
    finally:
        _SUPPRESSED.reset(token)


def make_logger(
    settings: LogSettings,
    stream: TextIO | None = None,
    lines: Events | None = None,
    writer: type[LineWriter] | None = None,
) -> structlog.stdlib.BoundLogger:
    """Make a host's own logger, without any global configuration. By default it writes to standard error.

    While somebody watches `lines`, each line is published there as an event `line`, too. A `writer` replaces the one
    that fits the stream.
    """
    import structlog  # noqa: PLC0415 - brings rich, and most commands log nothing

    stream = sys.stderr if stream is None else stream
    as_text = is_text(settings, stream)
    render: list[Any] = (
        # Plain tracebacks: the default shows the local variables of every frame, passwords and tokens among them.
        [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            _prepare_text,
            structlog.dev.ConsoleRenderer(
                0,  # no padding after the event; positional, since its name differs between versions
                colors=stream.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
                pad_level=False,
                sort_keys=False,
            ),
        ]
        if as_text
        else [structlog.processors.format_exc_info, _render_json]
    )
    processors = [
        structlog.contextvars.merge_contextvars,
        _add_request_id,
        structlog.processors.add_log_level,
        *([partial(_publish, lines)] if lines is not None else []),
        *render,
    ]
    writer = writer or (JournalWriter if is_journal(stream) else LineWriter)
    logger = structlog.wrap_logger(
        writer(stream, is_json=not as_text, watchers=lines),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.level.upper())),
        cache_logger_on_first_use=True,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def is_text(settings: LogSettings, stream: TextIO) -> bool:
    """Return whether the log on a stream is text for a person, not JSON."""
    return settings.format == "text" or (settings.format == "auto" and stream.isatty())


def silent_logger() -> structlog.stdlib.BoundLogger:
    """Make a logger that writes nothing, for commands that build a host without running it."""
    return cast("structlog.stdlib.BoundLogger", _SilentLogger())


class _SilentLogger:
    """A structured logger that writes nothing. Each of its methods returns the logger itself."""

    def __getattr__(self, name: str) -> Callable[..., _SilentLogger]:
        return lambda *_, **__: self


class LineWriter:
    """Writes lines to a stream, each with one system call, so that lines of several threads don't mix.

    It takes no lock: threads that log would soon wait for each other, and switching between them would cost more than
    the rest of the line.

    Failures are ignored: a full disk or a closed pipe must not fail the request that is logged. After a line that was
    written in part, the next one begins on a line of its own.
    """

    def __init__(self, stream: TextIO, *, is_json: bool, watchers: Events | None) -> None:
        self._is_json, self._watchers = is_json, watchers
        self._stream = stream
        self._encoding = stream.encoding or "utf-8"
        self._is_torn = False
        self._batch_bytes = _max_batch_bytes(stream)

    def write(self, line: str) -> None:
        """Write a line, or several joined by newlines."""
        try:
            try:
                descriptor = self._stream.fileno()
            except io.UnsupportedOperation:  # a stream in memory
                self._stream.write(f"{line}\n")
            else:
                data = f"{line}\n".encode(self._encoding, "backslashreplace")
                if self._is_torn:
                    data = b"\n" + data
                self._is_torn = os.write(descriptor, data) < len(data)
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = write

    def write_json(self, lines: Sequence[msgspec.Struct], contexts: Sequence[Context]) -> bool:
        """Write complete events as JSON, as many as possible with one system call.

        Returns:
            Whether it did. Otherwise each event must be logged in its context: for a person or a subscriber, or since
            the context has values for the line, or one is odd.
        """
        if not self._is_json or (self._watchers is not None and self._watchers.watched):
            return False
        names = {name.name for name in set().union(*contexts)}  # of thousands, a few differ
        if any(name.startswith(_STRUCTLOG_PREFIX) for name in names):
            return False
        try:
            data = _encode_lines(lines)
        except _ENCODING_ERRORS:
            return False
        begin = 0
        while begin < len(data):
            end = data.rfind(b"\n", begin, begin + self._batch_bytes)
            if end < 0:
                end = data.index(b"\n", begin)
            self.write(data[begin:end].decode())
            begin = end + 1
        return True


class JournalWriter(LineWriter):
    """Begins each line with its priority, which systemd's journal takes away and stores (sd-daemon(3))."""

    def debug(self, text: str) -> None:
        self._write(7, text)

    def info(self, text: str) -> None:
        self._write(6, text)

    def warning(self, text: str) -> None:
        self._write(4, text)

    def error(self, text: str) -> None:
        self._write(3, text)

    def critical(self, text: str) -> None:
        self._write(2, text)

    def _write(self, priority: int, text: str) -> None:
        self.write(with_priority(priority, text))


def with_priority(priority: int, text: str) -> str:
    """Begin each line with a priority. Whatever text of others a line begins with can't be taken for one then."""
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def is_journal(stream: TextIO) -> bool:
    """Return whether a stream leads to systemd's journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # a stream in memory, or closed
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _max_batch_bytes(stream: TextIO) -> int:
    """Return how many bytes to write with one system call: writes to a pipe are atomic only up to PIPE_BUF."""
    try:
        return _FILE_BATCH_BYTES if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else PIPE_BUF
    except (OSError, ValueError):  # a stream in memory, or closed
        return PIPE_BUF


class Bridge(logging.Handler):
    """Passes records of Python's `logging`, which libraries use, to a structured logger."""

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        super().__init__()
        self._target = logger

    def emit(self, record: logging.LogRecord) -> None:
        level = "critical" if record.levelno >= logging.CRITICAL else record.levelname.lower()
        log = getattr(self._target, level, self._target.info)
        fields = {"plugin": record.plugin} if hasattr(record, "plugin") else {}
        log(_message_of(record), logger=record.name, exc_info=record.exc_info, **fields)


def _message_of(record: logging.LogRecord) -> str:
    """Return a record's message; as with Python's own handlers, a mistake in it raises nothing where it is logged."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - any argument's __str__ may raise anything
        return f"{record.pathname}:{record.lineno} logs {record.msg!r} with arguments that don't fit: {error!r}"


def _publish(lines: Events, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if lines.watched:
        lines.publish(Event("line", event.get("plugin"), dict(event)))
    return event


def _add_request_id(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the id of the request that the line belongs to."""
    if (request_id := REQUEST_ID.get()) is not None:
        event.setdefault("request_id", request_id)
    return event


def _prepare_text(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return what a person is shown: no suppressed event, no None, no terminal sequences.

    A traceback or an audit event is only in the log, so a suppressed one lacks nothing but its reason. A plugin's
    traceback begins at its own code: the host's frames don't help to find the cause. Line breaks in the event are
    escaped, too: a client that sends some could forge or hide lines. structlog escapes those in other fields.
    """
    import structlog  # noqa: PLC0415 - see make_logger

    is_suppressed = event["event"] in _SUPPRESSED.get()
    if is_suppressed and event["event"] != "audit" and "exception" not in event:
        raise structlog.DropEvent
    shown = {}
    for key, value in event.items():
        if value is None or (key == "reason" and is_suppressed):
            continue
        if not isinstance(value, str):
            shown[key] = value
        elif key == "exception":
            shown[key] = own_frames(value)
        else:
            shown[key] = escape_controls(value, _EVENT_CONTROLS if key == "event" else CONTROLS)
    return shown


def _render_json(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    """Return an event as a line of JSON, in one step: structlog's own two processors take twice as long."""
    event.setdefault("timestamp", format_timestamp(time()))
    try:
        return _encode(event).decode()
    except _ENCODING_ERRORS:
        return json.dumps({str(key): str(value) for key, value in event.items()})


def format_timestamp(now: float) -> str:
    """Format a time, in seconds since the epoch, as in the log."""
    return _format_milliseconds(int(now * 1000))


@lru_cache(1)
def _format_milliseconds(now: int) -> str:
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(now // 1000))}.{now % 1000:03}Z"


_ENCODING_ERRORS: Final = (OverflowError, TypeError, ValueError)  # giant numbers, odd keys, lone surrogates
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_encode_lines: Final = msgspec.json.Encoder(enc_hook=str).encode_lines
