"""Requests that granian received: made into environs, and their bodies gathered by callbacks.

A body that comes slowly holds no thread. Once a request is complete, the dispatcher has it answered.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from asyncio import CancelledError
from io import BytesIO
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from plughost._servers.base import MEMORY_LIMIT, RECEIVED
from plughost._servers.granian_response import Call, send_error
from plughost._servers.responses import (
    LINGER_BYTES,
    LINGER_IDLE_SECONDS,
    LINGER_SECONDS,
    LONGEST_NUMBER,
    LONGEST_TARGET,
)

if TYPE_CHECKING:
    from plughost._servers.base import Address, Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.granian_response import Later, Message, Watcher
    from plughost._servers.work import ThreadGroup

_LOGGER: Final = logging.getLogger("plughost._servers")
_KNOWN_NAMES_LIMIT: Final = 512
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
_PROTOCOLS: Final = {"1": "HTTP/1.0", "1.1": "HTTP/1.1", "2": "HTTP/2"}


class Requests:
    """The requests of a listener; `address` is the name of the server in the environ, and its port."""

    def __init__(
        self,
        application: Application,
        dispatcher: Dispatcher,
        group: ThreadGroup,
        options: EngineOptions,
        address: tuple[str, int],
    ) -> None:
        self.calls: set[Call] = set()  # what is being answered
        self.waiting: set[Body | Call] = set()  # what waits for its client
        self.left: set[Address] = set()  # clients whose refused body nobody reads on: to be disconnected
        self.draining = False  # whether HTTP/1.1 clients are to close their connection after the next response
        self.application = application
        self.dispatcher = dispatcher
        self.group = group  # the threads that receive them
        self.options = options  # may be changed
        self._keys: dict[bytes, str] = {b"content-type": "CONTENT_TYPE", b"content-length": "CONTENT_LENGTH"}
        self._base: dict[str, Any] = {
            "SCRIPT_NAME": "",
            "SERVER_NAME": address[0],
            "SERVER_PORT": str(address[1]),
            "SERVER_SOFTWARE": "plughost",
            "wsgi.version": (1, 0),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
        }

    def schedule(self, watcher: Watcher) -> None:
        """Take a request, in the thread of granian that received it; what is raised here would be lost."""
        try:
            scope = watcher.scope
            environ, size, status = self._read(scope)
            if status:
                send_error(watcher.proto, environ, status)
                return
            call = Call(self, environ, watcher, scope["client"])
            del environ  # this thread may be parked below, for long
            if size == 0:
                self.answer(call, BytesIO())
            elif size is not None and size > self.options.body_limit:
                self.refuse_body(call, size)
            else:
                Body(self, call, size).wait()
        except BaseException:
            _LOGGER.exception("a request was not answered")

    def answer(self, call: Call, body: IO[bytes]) -> None:
        """Have a request answered that is complete; this thread may be parked for long then."""
        if self.application.timed:
            call.environ[RECEIVED] = perf_counter()
        call.body = call.environ["wsgi.input"] = body
        self.calls.add(call)
        dispatcher = self.dispatcher
        call.share = dispatcher.share_of(self.application.plugin_of(call.environ))
        if not dispatcher.run_in_pool(call, call.environ["REQUEST_METHOD"], self.group):
            dispatcher.run_or_queue(call, self.group)

    def refuse_body(self, call: Call, size: int) -> None:
        """Have the application answer that the body is over the limit."""
        call.environ["CONTENT_LENGTH"] = str(size)
        call.leaves_body = True
        self.answer(call, BytesIO())

    def drop_body(self, call: Call) -> None:
        """Drop what comes of a body that was refused, now that this is answered."""
        Leftover(self, call).wait()

    def _read(self, scope: dict[str, Any]) -> tuple[dict[str, Any], int | None, int]:
        """Return what a request says (PEP 3333), its body's length, if it tells, and the status that refuses it, or 0.

        What is ambiguous is refused (RFC 9112, 3.2 and 6.1).
        """
        raw: bytes = scope["raw_path"]
        path = target = raw.decode("latin-1")
        method: str = scope["method"]
        version: str = scope["http_version"]
        address, port = scope["client"]
        query = ""
        if scope["query_string"]:
            query = scope["query_string"].decode("latin-1")
            target = f"{path}?{query}"
        environ = self._base | {
            "REQUEST_METHOD": method,
            "REQUEST_URI": target,
            "PATH_INFO": unquote_to_bytes(raw).decode("latin-1") if "%" in path else path,
            "QUERY_STRING": query,
            "SERVER_PROTOCOL": _PROTOCOLS[version],
            "wsgi.url_scheme": scope["scheme"],
            "REMOTE_ADDR": address,
            "REMOTE_PORT": port,
        }
        keys = self._keys
        twice = False
        for name, value in scope["headers"]:
            key = keys.get(name) or self._key(name)
            if key not in environ:
                environ[key] = value.decode("latin-1")
            elif key in {"HTTP_HOST", "CONTENT_LENGTH"}:
                twice = True
            elif key:
                environ[key] += ("; " if key == "HTTP_COOKIE" else ", ") + value.decode("latin-1")
        environ.pop("", None)
        host = environ.get("HTTP_HOST")
        # `*`, or an authority, neither of which names a resource here; or what is no URI (RFC 3986, 2), which query and
        # path would read in different encodings; or too many hosts or lengths, or no host
        if raw[:1] != b"/" or not target.isascii() or twice or not (host or version == "1"):
            return environ, 0, 400
        if len(target) > LONGEST_TARGET:
            return environ, 0, 414
        if host == "":
            del environ["HTTP_HOST"]
        if "CONTENT_LENGTH" in environ or "HTTP_TRANSFER_ENCODING" in environ:
            return environ, *_announced(environ)
        return environ, None if version == "2" and method not in _BODILESS else 0, 0

    def _key(self, name: bytes) -> str:
        """Return the environ key of a header; empty for one with an underscore, which could pose as another."""
        key = "" if b"_" in name else "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        if len(self._keys) < _KNOWN_NAMES_LIMIT:
            self._keys[name] = key
        return key


def _announced(environ: dict[str, Any]) -> tuple[int | None, int]:
    """Return how long a body is that is announced, if it tells, and the status that refuses it, or 0."""
    declared = environ.get("CONTENT_LENGTH")
    coding = environ.pop("HTTP_TRANSFER_ENCODING", None)
    if declared is None:
        return None, 0 if coding == "chunked" else 400
    if coding is not None or not (declared.isascii() and declared.isdigit()) or len(declared) > LONGEST_NUMBER:
        return 0, 400
    return int(declared), 0


class Body:
    """A body that is on its way; a slow one holds no thread."""

    def __init__(self, requests: Requests, call: Call, length: int | None = None) -> None:
        self.size = 0
        self._is_http2 = call.environ["SERVER_PROTOCOL"] == "HTTP/2"
        # There a body ends with its stream, whatever length was announced.
        self._length = None if self._is_http2 else length
        self._requests = requests
        self._call = call
        self._watcher = call.watcher
        self._file: IO[bytes] = BytesIO()
        self._since = self.begun = time.monotonic()
        self._later: Later | None = None
        self._status = 408

    @property
    def client(self) -> str:
        """The address of its client, which a trusted proxy tells."""
        return self._requests.application.client_of(self._call.environ)

    def wait(self) -> None:
        """Wait for the next part."""
        later = self._watcher.proto.receive()
        if hasattr(later, "add_done_callback"):
            self._requests.waiting.add(self)
            self._later = later
            later.add_done_callback(self._take)
        else:
            self._end(400)  # the client has gone, and won't notice

    def check(self, now: float) -> None:
        """Give up where the client sends nothing, or too slowly."""
        if self._requests.options.is_late(now, begun=self.begun, since=self._since, size=self.size):
            self._give_up()

    def refuse(self) -> None:
        """Give up, since bodies take too much memory."""
        self._status = 503
        self._give_up()

    def _give_up(self) -> None:
        later = self._later
        if later is not None:
            later.cancel()

    def _take(self, later: Later) -> None:
        """Take a part, in a thread of granian."""
        self._requests.waiting.discard(self)
        self._later = None
        try:
            self._add(later.result())
        except CancelledError:  # by `_give_up`
            self._end(self._status)
        except BaseException:  # such as a full disk: what is raised here would be lost
            _LOGGER.exception("a body was not received")
            self._end(500)

    def _add(self, message: Message) -> None:
        """Keep a part; have the request answered with the last one."""
        requests, call = self._requests, self._call
        if message["type"] != "http.request":
            self._end(400)  # chunks that are none
            return
        part = message["body"]
        self.size += len(part)
        self._since = time.monotonic()
        if self.size > requests.options.body_limit:
            self._file.close()
            requests.refuse_body(call, self.size)
            return
        if self.size > MEMORY_LIMIT and isinstance(self._file, BytesIO):
            memory, self._file = self._file, tempfile.TemporaryFile()  # noqa: SIM115 - closed with the response
            self._file.write(memory.getvalue())
        self._file.write(part)
        if message.get("more_body") and self.size != self._length:
            self.wait()
        else:
            self._file.seek(0)
            call.body_ended = not message.get("more_body")
            call.environ["CONTENT_LENGTH"] = str(self.size)
            requests.answer(call, self._file)

    def _end(self, status: int) -> None:
        self._file.close()
        send_error(self._call.proto, self._call.environ, status)


class Leftover(Body):
    """The rest of a refused body: dropped while it comes, lest the connection be reset before the answer was read."""

    def check(self, now: float) -> None:
        """Let the connection be closed where nothing comes, or it takes long."""
        if now > self._since + LINGER_IDLE_SECONDS or now > self.begun + LINGER_SECONDS:
            self._give_up()

    def _add(self, message: Message) -> None:
        self.size += len(message.get("body", b""))
        self._since = time.monotonic()
        if message.get("more_body") and self.size < LINGER_BYTES:
            self.wait()
        else:
            self._end(0)

    def _end(self, status: int) -> None:
        self._watcher.done()
        if not self._is_http2:
            # A thread that is parked may hold what granian waits for before it closes.
            self._requests.left.add(self._call.peer)
