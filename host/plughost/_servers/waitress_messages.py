"""HTTP/1.1 requests as waitress parses them, and its responses.

What RFC 9112 lets or makes a server refuse is refused, and connections stay open where waitress would close them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from waitress.channel import ClientDisconnected
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.rfc7230 import CHUNK_EXT, TOKEN
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import BadRequest

from plughost._servers.base import RECEIVED, CutOffError
from plughost._servers.responses import MAX_DIGITS, engine_error, slices
from plughost._waiting import Pause
from plughost.http._response import check_name, status_code
from plughost.http._routing import MAX_TARGET_BYTES

_LOGGER: Final = logging.getLogger("plughost._servers")
_LINES_LIMIT: Final = 8192  # bytes of a chunk's line, or of all trailer fields
_TEXT: Final = r"[\t -~\x80-\xff]*"

TASK: Final = "plughost.task"
"""Environ key of the request's task, until the application is called."""
_FRAMING: Final = re.compile(rb"\r\n(content-length|transfer-encoding|host|cookie)[ \t]*:[ \t]*([^\r]*)", re.IGNORECASE)
# In a line of another form, and before a value, waitress searches in quadratic time: minutes, for 64 KiB.
_REQUEST_LINE: Final = re.compile(rb"[^ \r]+ [^ \r]+(?: HTTP/[0-9]\.[0-9])?\r\n")
_LEADING_SPACE: Final = re.compile(rb"(\r\n[^\r:]+:)[ \t]{2,}")
_MAX_LINES: Final = 102  # that of the request, 100 header lines as on granian, and the empty one
_TARGET_PATH: Final = re.compile(rb"\s*\S+[ \t]+(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*)?(/[^?#\s]*)")
_REQUEST_ID: Final = re.compile(rb"\nx-request-id[ \t]*:[ \t]*([\w.-]+)[ \t]*(?:\r|\Z)", re.IGNORECASE)
_BARE_LINE_END: Final = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")  # CR or LF alone
_BEGIN: Final = re.compile(rb"(?:\r\n)*(?:\r?\Z|\S)")  # after empty lines (RFC 9112 2.2)
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]+)")
# Characters that no URI has (RFC 3986, 2), as hyper, below granian, defines them: clients do send the others.
_NON_URI: Final = re.compile(r"[\x00-\x20\x7f-\xff<>]|^[^?]*(?:`|\?.*\")")


def _line_pattern(complete: str, partial: str) -> re.Pattern[bytes]:
    """Return a pattern for a complete line, or for a partial one at the end of the data."""
    return re.compile(rf"(?:{complete})(?P<end>\r\n)|(?:{partial})?\r?\Z".encode("latin-1"))


_SIZE: Final = _line_pattern(rf"(?P<size>[0-9A-Fa-f]{{1,16}}){CHUNK_EXT}", rf"[0-9A-Fa-f]{{1,16}}(?:;{_TEXT})?")
_DATA_END: Final = _line_pattern("", "")
_TRAILER: Final = _line_pattern(rf"(?P<field>{TOKEN}:{_TEXT})?", rf"{TOKEN}(?::{_TEXT})?")


class StrictChunkedReceiver:
    """Receives a chunked body (RFC 9112 7.1), whose lines end with CR LF only. Trailer fields are discarded.

    waitress's own receiver accepts some bare LFs as line ends, but not others. If two servers see lines end in
    different places, one client's request may be mistaken for another's.
    """

    completed = False
    error: BadRequest | None = None

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._remaining = 0  # bytes of the current chunk
        self._expected = _SIZE
        self._partial_line = b""
        self._trailer_bytes = 0

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def expected_size(self) -> int:
        """The size of the body up to the end of the current chunk."""
        return len(self._buffer) + self._remaining

    def received(self, data: bytes) -> int:
        """Take bytes from the connection, and return how many belonged to the body."""
        position, carried = 0, len(self._partial_line)
        data, self._partial_line = self._partial_line + data, b""
        while position < len(data) and not self.completed:
            if self._remaining:
                part = data[position : position + self._remaining]
                self._buffer.append(part)
                self._remaining -= len(part)
                position += len(part)
                continue
            line = self._expected.match(data, position)
            if line is None or self._trailer_bytes + len(line[0]) > _LINES_LIMIT:
                self.error = BadRequest("")
                return len(data) - carried
            position = line.end()
            if line["end"]:
                self._advance(line)
            else:
                self._partial_line = line[0]
        return position - carried

    def _advance(self, line: re.Match[bytes]) -> None:
        """Set what follows a line."""
        if self._expected is _SIZE:
            self._remaining = int(line["size"], 16)
            self._expected = _DATA_END if self._remaining else _TRAILER
        elif self._expected is _DATA_END:
            self._expected = _SIZE
        else:
            self._trailer_bytes += len(line[0])
            self.completed = line["field"] is None

    def getfile(self) -> Any:
        return self._buffer.getfile()

    def getbuf(self) -> Any:
        return self._buffer


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress is untyped
    """Parses one request. A body over the limit is not read."""

    oversized = False  # whether the body was over the limit; then the request is complete, without a body
    completed_at: float | None = None  # by `time.perf_counter()`, if the application is timed
    command: str
    completed: bool
    path = ""
    error: Any
    headers: dict[str, str]
    body_rcv: Any
    header_plus: bytes
    request_uri: str

    def __init__(self, adj: Any) -> None:
        super().__init__(adj)
        self.started_at = time.monotonic()  # when its first byte arrived

    def received(self, data: bytes) -> int:
        """Take bytes from the connection, and return how many belonged to this request."""
        head = self.header_plus + data if self.body_rcv is None else b""
        if not _BEGIN.match(head):
            self.refuse(400)  # waitress would drop any white space
            self._identify(head)
            return len(data)
        try:
            consumed: int = super().received(data)
        except OSError as error:  # the disk is full, for a body that is too large for memory
            _LOGGER.error("a request body can't be kept in a temporary file, in TMPDIR: %s", str(error))
            with suppress(OSError):  # closing the file writes, too
                self.body_rcv.getbuf().close()
            self.body_rcv = None
            self.refuse(503)
            return len(data)
        if not self.headers_finished and not self.completed and _BARE_LINE_END.search(self.header_plus):
            self.refuse(400)
        if self.error is not None and head:
            self._identify(head)
        body = self.body_rcv
        if body is not None and self.error is None:
            size = body.expected_size if self.chunked else self.content_length
            if size > self.adj.options.body_limit:
                self.headers["CONTENT_LENGTH"] = str(size)
                body.getbuf().close()
                self.body_rcv = None
                self.oversized = self.completed = True
        if self.completed:
            self.expect_continue = False
        return consumed

    def refuse(self, status: int) -> None:
        """Read no more, and answer with an error."""
        self.error = BadRequest("")
        self.error.code = status
        self.completed = True

    def _identify(self, head: bytes) -> None:
        """Set path and request id of a refused head, for the response: waitress stops at what it can't parse."""
        target = _TARGET_PATH.match(head)
        self.path = unquote_to_bytes(target[1]).decode("latin-1") if target is not None else ""
        request_id = _REQUEST_ID.search(head)
        if request_id is not None:
            self.headers.setdefault("X_REQUEST_ID", request_id[1].decode("latin-1"))

    def parse_header(self, header_plus: bytes) -> None:
        """Parse request line and header fields.

        Raises:
            ParsingError: A malformed request line (RFC 9112 3), folded lines (5.2), bare LF or CR (2.2), no or several
                Hosts (3.2), ambiguous framing (6.1, 6.3), or a target that is no URI (3.2).
        """
        if header_plus.count(b"\n") > _MAX_LINES:
            self.refuse(431)
        else:
            self._parse_head(header_plus)

    def _parse_head(self, header_plus: bytes) -> None:
        fields: dict[bytes, list[bytes]] = {}
        for name, value in _FRAMING.findall(header_plus):
            fields.setdefault(name.lower(), []).append(value)
        hosts, lengths, codings, cookies = (
            fields.get(name, []) for name in (b"host", b"content-length", b"transfer-encoding", b"cookie")
        )
        if b"\r\n " in header_plus or b"\r\n\t" in header_plus or header_plus.partition(b"\r\n")[0][-1:].isspace():
            raise ParsingError("folded header line, or white space after the request line, which waitress would drop")
        if len(lengths + codings) > 1 or codings not in ([], [b"chunked"]) or len(b"".join(lengths)) > MAX_DIGITS:
            raise ParsingError("absurd or ambiguous length of the body, or a transfer coding that is not chunked")
        method, space, rest = header_plus.partition(b" ")
        self._call_waitress(method.upper() + space + rest)  # waitress would refuse another one as malformed
        self.command = method.decode("latin-1")
        if self.chunked:
            self.body_rcv = StrictChunkedReceiver(self.body_rcv.getbuf())
        if self.error is None and header_plus.count(b"\r\n") > 1:  # waitress parses a line of its own for some errors
            if not self.version or (codings and self.version == "1.0"):
                raise ParsingError("no HTTP version, or a coding that it lacks")
            if self.version not in {"1.0", "1.1"}:
                self.refuse(505)
            elif len(hosts) > 1 or (self.version == "1.1" and not (hosts and hosts[0])):
                raise ParsingError("exactly one Host is needed")
        if len(cookies) > 1:
            self.headers["COOKIE"] = b"; ".join(cookies).decode("latin-1")
        self._split_target()

    def _call_waitress(self, header_plus: bytes) -> None:
        if not _REQUEST_LINE.match(header_plus):
            raise ParsingError("malformed request line")
        try:
            super().parse_header(_LEADING_SPACE.sub(rb"\1", header_plus))
        except ValueError as error:  # for which waitress would close the connection without a response
            raise ParsingError("brackets in the target's authority that enclose no address") from error

    def _split_target(self) -> None:
        """Set path and query from the raw target. Its authority replaces Host (RFC 9112 3.2.2).

        As on granian, no fragment is kept, and no question mark without a query.
        """
        target = self.request_uri
        if _NON_URI.search(target):
            raise ParsingError("character in the target that no URI has")
        if not target.startswith("/"):
            absolute = _ABSOLUTE.match(target)
            if absolute is None:
                raise ParsingError("target without a leading slash or an authority")
            self.headers["HOST"] = absolute[1]
            target = target[absolute.end() :]
            target = target if target.startswith("/") else f"/{target}"
        if len(target) > MAX_TARGET_BYTES:
            self.refuse(414)
        path, _, self.query = target.partition("#")[0].partition("?")
        self.request_uri = f"{path}?{self.query}" if self.query else path
        self.path = unquote_to_bytes(path.encode("latin-1")).decode("latin-1") if "%" in path else path

    def get_body_stream(self) -> Any:
        return BytesIO() if self.body_rcv is None else self.body_rcv.getfile()


class FlowPause(Pause):
    """A pause of a response whose client is slow, or that yields the turn to other jobs."""


class PausedError(BaseException):
    """Raised out of a task whose response continues later. Waitress would take an `Exception` for a failure."""

    def __init__(self, task: Task, pause: Pause) -> None:
        self.task = task
        self.pause = pause


class ResumableBody:
    """A response's body that stops at a pause, and continues when it is iterated again."""

    def __init__(self, body: Iterable[bytes], task: Task) -> None:
        self._parts = slices(body)
        self._close = getattr(body, "close", None)
        self._task = task
        self._paused = self._is_first = False

    def __iter__(self) -> Iterator[bytes]:
        self._paused, self._is_first = False, True
        return self

    def __next__(self) -> bytes:
        """Return a part. Pause while the client is slow, and after each part for other jobs that wait."""
        channel = self._task.channel
        must_yield = not self._is_first and channel.server.task_dispatcher.is_contended(channel.share)
        self._is_first = False
        part = next(self._parts) if channel.has_room() and not must_yield else FlowPause()
        if isinstance(part, Pause):
            self._paused = True
            raise PausedError(self._task, part)
        return part

    def close(self) -> None:
        """Close the body, unless it is only suspended."""
        if not self._paused:
            self.abandon()

    def abandon(self) -> None:
        """Close the body, even if it is suspended."""
        close, self._close = self._close, None
        if close is not None:
            close()


class Task(WSGITask):  # type: ignore[misc]  # waitress is untyped
    """Calls the application for one request."""

    close_on_finish: bool
    resumable_body: ResumableBody | None = None  # unless the body is a list

    def get_environment(self) -> dict[str, Any]:
        """Return the environ, with method and path as they were sent: waitress joins leading slashes."""
        environ: dict[str, Any] = super().get_environment()
        environ["REQUEST_METHOD"] = self.request.command
        environ["PATH_INFO"] = self.request.path
        environ[TASK] = self
        if self.request.completed_at is not None:
            environ[RECEIVED] = self.request.completed_at
        return environ

    def execute(self) -> None:
        """Answer, or continue the response. An application that exits fails, and does not end the thread."""
        try:
            super().execute()
        except CutOffError:
            raise ClientDisconnected from None  # closes the connection without an end of the body
        except (Exception, PausedError):
            raise
        except BaseException as error:
            raise RuntimeError(f"the application raised {type(error).__name__}") from error

    def write(self, data: bytes) -> None:
        """Write a part of the body, of which HEAD has none."""
        super().write(b"" if self.request.command == "HEAD" else data)

    def build_response_header(self) -> bytes:
        """Return the head. waitress would close each connection after a response of unknown length, 204 and 304.

        Raises:
            ValueError: The status or a name is invalid.
        """
        status_code(self.status)
        for name, _ in self.response_headers:
            check_name(name)
        request, channel = self.request, self.channel
        connection_options = {each.strip().lower() for each in request.headers.get("CONNECTION", "").split(",")}
        is_last = request.oversized or (channel.server.is_draining and len(channel.requests) <= 1)
        if is_last or "close" in connection_options:
            request.headers["CONNECTION"] = "close"
        keeps_open = self.version == "1.1" and request.headers.get("CONNECTION") != "close" and not self.close_on_finish
        head: bytes = super().build_response_header()
        if request.command == "HEAD":
            self.chunked_response = False
        if keeps_open:
            self.close_on_finish = False
            head = head.replace(b"\r\nConnection: close", b"", 1)
        return head


class ProblemTask(ErrorTask):  # type: ignore[misc]  # waitress is untyped
    """Responds with an error instead of calling the application."""

    def execute(self) -> None:
        asked = self.channel.requests[0]  # where the application failed, `self.request` is made up by waitress
        errors = self.channel.adj.application.errors_of({"PATH_INFO": getattr(asked, "path", "")})
        request_id = asked.headers.get("X_REQUEST_ID", "")
        self.status, headers, body = engine_error(self.request.error.code, request_id, errors)
        self.response_headers.extend(headers)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(b"" if getattr(asked, "command", "") == "HEAD" else body)
