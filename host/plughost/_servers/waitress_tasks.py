"""What a worker of waitress does with one request: call the application, or refuse.

waitress's own task titles and sorts the fields of each response anew, closes the connection after every response
without Content-Length, 204 and 304 among them, and takes twice the time. What is inherited is the order of things.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from waitress.channel import ClientDisconnected
from waitress.task import ErrorTask, Task
from waitress.utilities import build_http_date

from plughost._servers.base import CutOffError
from plughost._servers.fields import check_status, line_break, title_name
from plughost._servers.problems import engine_error

_LOGGER: Final = logging.getLogger("plughost._servers")
_http_date: Final = lru_cache(maxsize=2)(build_http_date)


class ApplicationTask(Task):  # type: ignore[misc]  # waitress is untyped
    """Calls the application for one request.

    Attributes:
        has_body: Whether the response may have a body, which 204, 304 and answers to HEAD have none of.
    """

    has_body = True
    complete: bool
    wrote_header: bool
    close_on_finish: bool
    chunked_response: bool
    content_length: int | None
    content_bytes_written: int
    _lines: list[str]
    _names: list[str]

    def service(self) -> None:
        """Answer the request; an application that exits fails, and does not end the thread."""
        try:
            super().service()
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise RuntimeError("the application raised SystemExit or the like") from error

    def execute(self) -> None:
        """Call the application, and write what it returns."""
        application = self.channel.server.application
        call = application.refuse if self.channel.overloaded else application
        iterable: Iterable[bytes] = call(self._environ(), self._start_response)
        try:
            if type(iterable) in {list, tuple}:
                body = b"".join(iterable)
                if self.content_length is None and not self.wrote_header:
                    self.content_length = len(body)
                self.write(body)
            else:
                for part in iterable:
                    if part:
                        self.write(part)
        except CutOffError:
            raise ClientDisconnected from None  # closes the connection without an end of the body
        finally:
            close = getattr(iterable, "close", None)
            if close is not None:
                close()
        if self.has_body and self.content_length not in {None, self.content_bytes_written}:
            _LOGGER.warning("the response to %s is shorter than its Content-Length", self.request.path)
            self.close_on_finish = True

    def _environ(self) -> dict[str, Any]:
        """Return the WSGI environ (PEP 3333)."""
        request, channel = self.request, self.channel
        environ: dict[str, Any] = channel.server.environ.copy()
        environ["REMOTE_ADDR"], port, *_ = channel.addr
        environ["REMOTE_PORT"] = str(port)
        environ["REQUEST_METHOD"] = request.command.upper()
        environ["SERVER_PROTOCOL"] = f"HTTP/{self.version}"
        environ["PATH_INFO"] = request.path
        environ["REQUEST_URI"] = request.request_uri
        environ["QUERY_STRING"] = request.query
        environ["wsgi.input"] = request.get_body_stream()
        for name, value in request.headers.items():
            environ[name if name in {"CONTENT_LENGTH", "CONTENT_TYPE"} else f"HTTP_{name}"] = value
        return environ

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        if exc_info:
            if self.wrote_header:
                raise exc_info[1]
        elif self.complete:
            raise AssertionError("start_response was called twice without exc_info")
        check_status(status)
        bodiless = status[0] == "1" or status.startswith(("204", "304"))
        self.has_body = not bodiless and self.request.command != "HEAD"
        self.content_length = None
        self._names = names = []
        lines = [f"HTTP/{self.version} {status}\r\n"]
        for name, value in headers:
            title = title_name(name)
            if "\n" in value or "\r" in value:
                raise line_break(title)
            if title == "Content-Length":
                if bodiless:  # RFC 9110 8.6
                    continue
                self.content_length = int(value)
            names.append(title)
            lines.append(f"{title}: {value}\r\n")
        self._lines = lines
        self.complete = True
        return self.write

    def write(self, data: bytes) -> None:
        """Write a part of the body, the first one in one packet with the header.

        Raises:
            RuntimeError: `start_response` was not called.
        """
        if not self.complete:
            raise RuntimeError("the application wrote before it called start_response")
        head = b"" if self.wrote_header else self._head()
        self.wrote_header = True
        if not (data and self.has_body):
            data = b""
        elif self.chunked_response:
            data = b"%X\r\n%b\r\n" % (len(data), data)
        elif self.content_length is not None:
            data = data[: self.content_length - self.content_bytes_written]
            self.content_bytes_written += len(data)
        if head or data:
            self.channel.write_soon(head + data)

    def _head(self) -> bytes:
        """Return status line and header fields, which say how the response ends (RFC 9112 6.3)."""
        lines, names = self._lines, self._names
        if self.has_body and "Content-Length" not in names:
            if self.content_length is not None:
                lines.append(f"Content-Length: {self.content_length}\r\n")
            elif self.version == "1.1":
                lines.append("Transfer-Encoding: chunked\r\n")
                self.chunked_response = True
            else:
                self.close_on_finish = True
        if not self._persists():
            self.close_on_finish = True
            lines.append("Connection: close\r\n")
        elif self.version == "1.0":
            lines.append("Connection: keep-alive\r\n")
        if "Server" not in names:
            lines.append(f"Server: {self.channel.server.adj.ident}\r\n")
        if "Date" not in names:
            lines.append(f"Date: {_http_date(int(self.start_time))}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1")

    def _persists(self) -> bool:
        """Tell whether another request may follow (RFC 9112 9.3); none does after an unread body, or while draining."""
        channel, request = self.channel, self.request
        if self.close_on_finish or request.oversized or (channel.server.draining and len(channel.requests) <= 1):
            return False
        wish = request.headers.get("CONNECTION")
        if not wish:
            return bool(self.version == "1.1")
        wishes = {each.strip().lower() for each in wish.split(",")}
        return "close" not in wishes and (self.version == "1.1" or "keep-alive" in wishes)


class RefusalTask(ErrorTask):  # type: ignore[misc]  # waitress is untyped
    """Answers a request that cannot be given to the application."""

    def execute(self) -> None:
        """Write problem details, and close the connection."""
        asked = self.channel.requests[0]  # where the application failed, `self.request` is made up by waitress
        request_id = asked.headers.get("X_REQUEST_ID", "")
        self.status, headers, body = engine_error(self.request.error.code, request_id)
        self.response_headers.extend(headers)
        self.set_close_on_finish()
        self.content_length = len(body)
        if getattr(asked, "command", "") != "HEAD":
            self.write(body)
