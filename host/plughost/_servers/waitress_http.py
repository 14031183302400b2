"""HTTP/1.1 as waitress speaks it, made stricter and told about the body limit and the drain.

waitress parses (`Parser`), a thread answers (`waitress_tasks`), and the connection (`Channel`) ties both together;
each class here changes one of waitress's where its documentation offers that.
"""

from __future__ import annotations

import re
import socket
import time
from io import BytesIO
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import BadRequest

from plughost._servers.dispatcher import Job, Lane
from plughost._servers.problems import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS, LONGEST_NUMBER, LONGEST_TARGET
from plughost._servers.waitress_tasks import ApplicationTask, RefusalTask

if TYPE_CHECKING:
    from plughost._servers.base import EngineOptions

_FRAMING: Final = re.compile(rb"\r\n(content-length|transfer-encoding|host|cookie)[ \t]*:", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r]*)", re.IGNORECASE)
_CODING: Final = re.compile(rb"\r\ntransfer-encoding[ \t]*:[ \t]*([^\r]*)", re.IGNORECASE)
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_COOKIE: Final = re.compile(rb"\r\ncookie:[ \t]*([^\r]*)", re.IGNORECASE)
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]")
_CHUNK_LINE_LIMIT: Final = 4096
_TRAILER_LIMIT: Final = 16 * 1024


class Answer(Job):
    """The next request of a connection."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel, lane: Lane) -> None:
        """Begin with nothing done."""
        self._channel = channel
        self.lane = lane
        self.begun = False
        self.since = 0.0

    def run(self) -> None:
        """Answer it."""
        self._channel.overloaded = False
        self._channel.service()

    def refuse(self) -> None:
        """Answer that the plugin has too much to do."""
        self._channel.overloaded = True
        self._channel.service()


class UnsupportedVersion(BadRequest):  # type: ignore[misc]  # waitress is untyped
    """An HTTP version that is not spoken here."""

    code = 505
    reason = "HTTP Version Not Supported"


class LongTarget(BadRequest):  # type: ignore[misc]  # waitress is untyped
    """An address that is too long."""

    code = 414
    reason = "URI Too Long"


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress is untyped
    """One request: what waitress accepts and RFC 9112 does not is refused; a body over the limit is not read.

    Attributes:
        oversized: Whether the body was over the limit; the request is complete then, with no body.
        born: When its first byte arrived, of `time.monotonic()`.
    """

    oversized = False
    completed: bool
    error: Any
    headers: dict[str, str]
    body_rcv: Any
    header_plus: bytes
    request_uri: str

    def __init__(self, adj: Any) -> None:
        """Start with an empty request."""
        super().__init__(adj)
        self.born = time.monotonic()

    def received(self, data: bytes) -> int:
        """Take bytes from the connection, and return how many belonged to this request."""
        consumed: int = super().received(data)
        if not self.headers_finished and not self.completed and _BARE_LF.search(self.header_plus):
            self.error = BadRequest("a line that ends with a bare LF")
            self.completed = True
        body = self.body_rcv
        if body is not None and self.error is None:
            limit = self.adj.body_limit
            if self.content_length > limit or len(body) > limit:
                self._refuse_body(max(self.content_length, len(body)))
            elif self.chunked and (len(body.control_line) > _CHUNK_LINE_LIMIT or len(body.trailer) > _TRAILER_LIMIT):
                self.error = BadRequest("chunk line or trailer too long")
                self.completed = True
        if self.completed:
            self.expect_continue = False
        return consumed

    def _refuse_body(self, length: int) -> None:
        self.body_rcv.getbuf().close()
        self.body_rcv = None
        self.oversized = self.completed = True
        self.headers["CONTENT_LENGTH"] = str(length)

    def parse_header(self, header_plus: bytes) -> None:
        """Parse request line and header fields.

        Raises:
            ParsingError: RFC 9112 lets or makes a server refuse it: folded lines (5.2), no or several Hosts (3.2),
                ambiguous framing (6.1, 6.3).
        """
        if b"\r\n " in header_plus or b"\r\n\t" in header_plus:
            raise ParsingError("folded header line")
        length = _LENGTH.search(header_plus)
        if length is not None and len(length[1]) > LONGEST_NUMBER:
            raise ParsingError("absurd Content-Length")
        if any(coding != b"chunked" for coding in _CODING.findall(header_plus)):
            raise ParsingError("a transfer coding that is not chunked")
        super().parse_header(header_plus)
        names = [name.lower() for name in _FRAMING.findall(header_plus)]
        if self.error is None and header_plus.count(b"\r\n") > 1:
            self._check(names)
        if names.count(b"cookie") > 1:
            self.headers["COOKIE"] = b"; ".join(_COOKIE.findall(header_plus)).decode("latin-1")
        self._split_target()

    def _check(self, names: list[bytes]) -> None:
        if self.version not in {"1.0", "1.1"}:
            if not self.version:
                raise ParsingError("no HTTP version")
            self.error = UnsupportedVersion("")
            self.completed = True
        hosts, lengths, codings = (
            names.count(b"host"),
            names.count(b"content-length"),
            names.count(b"transfer-encoding"),
        )
        if hosts > 1 or (self.version == "1.1" and (not hosts or not self.headers["HOST"])):
            raise ParsingError("exactly one Host is needed")
        if lengths > 1 or codings > 1 or (lengths and codings) or (codings and self.version == "1.0"):
            raise ParsingError("ambiguous length of the body")

    def _split_target(self) -> None:
        """Set path and query from the raw target, whose authority (RFC 9112 3.2.2) and fragment are cut off."""
        target = self.request_uri
        if _CONTROL.search(target):
            raise ParsingError("control character in the target")
        if not target.startswith("/"):
            target, absolute = _ABSOLUTE.subn("", target, count=1)
            if not absolute:
                raise ParsingError("target without a leading slash")
            target = target if target.startswith("/") else f"/{target}"
        if len(target) > LONGEST_TARGET:
            self.error = LongTarget("")
            self.completed = True
        self.request_uri, _, _ = target.partition("#")
        path, _, self.query = self.request_uri.partition("?")
        self.path = unquote_to_bytes(path.encode("latin-1")).decode("latin-1") if "%" in path else path

    def is_late(self, now: float) -> bool:
        """Return whether the body takes too long; a pause is noticed as one of the connection."""
        size = 0 if self.body_rcv is None else len(self.body_rcv)
        options: EngineOptions = self.adj.options
        return options.is_late(now, begun=self.born, since=now, size=size)

    def get_body_stream(self) -> Any:
        """Return a file with the body."""
        return BytesIO() if self.body_rcv is None else self.body_rcv.getfile()


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection; one that closes with bytes on their way reads on for a while, so that its answer arrives.

    A socket closed with unread bytes is reset, and the reset may overtake the answer (RFC 9112 9.6).

    Attributes:
        watched: What the loop waits for on its socket, of `selectors`.
    """

    watched = 0

    task_class = ApplicationTask
    error_task_class = RefusalTask
    parser_class = Parser

    server: Any  # the loop's Server: waitress gives it
    _fileno: int | None
    close_when_flushed: bool
    will_close: bool
    linger_until = 0.0
    linger_bytes = 0
    _last_activity = 0.0
    refused = False
    overloaded = False

    def service(self) -> None:
        """Answer one request."""
        request = self.requests[0]
        self.refused = bool(request.error or request.oversized)
        self.server.serving.channel = self
        super().service()

    def wanted(self) -> int:
        """Return what the loop should wait for on its socket, of `selectors`; 0 for nothing."""
        if self._fileno is None:  # it was closed
            return 0
        return (EVENT_READ if self.readable() else 0) | (EVENT_WRITE if self.writable() else 0)

    def add_channel(self, map: Any = None) -> None:  # noqa: A002 - the name is waitress's
        """Have the loop wait for what the client sends."""
        super().add_channel(map)
        self.server.changed.append(self)

    def del_channel(self, map: Any = None) -> None:  # noqa: A002 - the name is waitress's
        """Leave the loop; the socket is closed next."""
        self.server.forget(self)
        super().del_channel(map)

    def handle_write(self) -> None:
        """Send what waits, and close when told to."""
        if not (self.refused and self.close_when_flushed) or self.will_close:
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if self.total_outbufs_len or self.will_close:
            return
        self.close_when_flushed = False
        self.linger_until = time.monotonic() + LINGER_SECONDS
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.will_close = True

    def handle_read(self) -> None:
        """Read from the client, or while lingering read and drop."""
        if not self.linger_until:
            super().handle_read()
            return
        data = self.recv(self.adj.recv_bytes)  # closes the channel at the end of the stream
        self.last_activity = time.monotonic()
        self.linger_bytes += len(data)
        if self.linger_bytes > LINGER_BYTES:
            self.will_close = True

    def overdue(self, now: float, idle_timeout: float) -> bool:
        """Return whether the client keeps the server waiting for too long.

        Args:
            now: `time.monotonic()`.
            idle_timeout: Seconds to wait for a whole header, or for something to be taken of a response.
        """
        if self.linger_until:
            return now > self.linger_until or now - self.last_activity > LINGER_IDLE_SECONDS
        if self.requests:
            return bool(self.total_outbufs_len) and now - self.last_activity > idle_timeout
        if self.request is None:
            return False
        if not self.request.headers_finished:
            return bool(now - self.request.born > idle_timeout)
        return bool(self.request.is_late(now))

    def busy(self) -> bool:
        """Return whether a request is being answered, or its answer is on its way."""
        return bool(self.requests or self.total_outbufs_len or self.close_when_flushed)

    @property
    def last_activity(self) -> float:
        """When something was last received or sent, of `time.monotonic()`."""
        return self._last_activity

    @last_activity.setter
    def last_activity(self, _: float) -> None:
        """Note that something was; waitress tells the time of day, which may be set meanwhile."""
        self._last_activity = time.monotonic()
