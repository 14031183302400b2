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
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from plughost._servers.answers import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS, LONGEST_NUMBER, LONGEST_TARGET
from plughost._servers.base import MEMORY_LIMIT
from plughost._servers.granian_response import Call, send_error

if TYPE_CHECKING:
    from plughost._servers.base import Address, Application, EngineOptions
    from plughost._servers.dispatcher import Crew, Dispatcher
    from plughost._servers.granian_response import Later, Message, Watcher

_LOGGER: Final = logging.getLogger("plughost._servers")
_KNOWN_NAMES_LIMIT: Final = 512
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
_PROTOCOLS: Final = {"1": "HTTP/1.0", "1.1": "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}


class _RefusedError(Exception):
    """A request that the application does not see; the argument is the status."""


class Requests:
    """The requests of a listener.

    Args:
        application: What answers them.
        dispatcher: Whose turn they are answered in.
        crew: The threads that receive them.
        options: Limits and time-outs.
        address: The name of the server in the environ, and its port.

    Attributes:
        calls: What is being answered.
        waiting: What waits for its client.
        body_limit: Largest body that is read, in bytes; may be changed.
        left: The clients whose refused body nobody reads on: their connections are to be closed.
        draining: Whether HTTP/1.1 clients are to close their connection after the next response.
    """

    def __init__(
        self,
        application: Application,
        dispatcher: Dispatcher,
        crew: Crew,
        options: EngineOptions,
        address: tuple[str, int],
    ) -> None:
        """Prepare what is the same for every request."""
        self.calls: set[Call] = set()
        self.waiting: set[Body | Call] = set()
        self.left: set[Address] = set()
        self.body_limit = options.body_limit
        self.draining = False
        self.application = application
        self.dispatcher = dispatcher
        self.crew = crew
        self.options = options
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
            environ = self._base.copy()
            try:
                self._complete(environ, scope)
                size = _announced(environ)
            except _RefusedError as refusal:
                send_error(watcher.proto, environ, refusal.args[0])
                return
            call = Call(self, environ, watcher)
            if size == 0:
                self.answer(call, BytesIO())
            elif size is not None and size > self.body_limit:
                self.refuse_body(call, size)
            else:
                Body(self, call).wait()
        except BaseException:
            _LOGGER.exception("a request was not answered")

    def answer(self, call: Call, body: IO[bytes]) -> None:
        """Have a request answered that is complete; this thread may be parked for long then."""
        call.take_body(body)
        self.calls.add(call)
        self.dispatcher.bring(call, self.crew)

    def refuse_body(self, call: Call, size: int) -> None:
        """Have the application answer that the body is over the limit."""
        call.environ["CONTENT_LENGTH"] = str(size)
        call.leaves_body = True
        self.answer(call, BytesIO())

    def drop_body(self, call: Call) -> None:
        """Drop what comes of a body that was refused, now that this is answered."""
        Leftover(self, call).wait()

    def _complete(self, environ: dict[str, Any], scope: dict[str, Any]) -> None:
        """Add to an environ what a request says (PEP 3333), but for its body.

        Raises:
            _RefusedError: The request is ambiguous (RFC 9112 3.2).
        """
        raw: bytes = scope["raw_path"]
        path = raw.decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        environ["REQUEST_METHOD"] = scope["method"]
        environ["REQUEST_URI"] = f"{path}?{query}" if query else path
        environ["PATH_INFO"] = unquote_to_bytes(raw).decode("latin-1") if "%" in path else path
        environ["QUERY_STRING"] = query
        environ["SERVER_PROTOCOL"] = _PROTOCOLS[scope["http_version"]]
        environ["wsgi.url_scheme"] = scope["scheme"]
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = scope["client"]
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
        if raw[:1] != b"/":  # `*`, or an authority: neither names a resource here
            raise _RefusedError(400)
        if len(environ["REQUEST_URI"]) > LONGEST_TARGET:
            raise _RefusedError(414)
        if twice or not (environ.get("HTTP_HOST") or scope["http_version"] == "1"):
            raise _RefusedError(400)
        if environ.get("HTTP_HOST") == "":
            del environ["HTTP_HOST"]

    def _key(self, name: bytes) -> str:
        """Return the environ key of a header; empty for one with an underscore, which could pose as another."""
        key = "" if b"_" in name else "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        if len(self._keys) < _KNOWN_NAMES_LIMIT:
            self._keys[name] = key
        return key


def _announced(environ: dict[str, Any]) -> int | None:
    """Return how long the body is that a request announces; None where that is to be seen.

    Raises:
        _RefusedError: That is ambiguous (RFC 9112 6.1).
    """
    declared = environ.get("CONTENT_LENGTH")
    coding = environ.pop("HTTP_TRANSFER_ENCODING", None)
    if coding not in {None, "chunked"}:
        raise _RefusedError(400)
    if declared is None:
        expected = coding is not None or (
            environ["SERVER_PROTOCOL"] == "HTTP/2" and environ["REQUEST_METHOD"] not in _BODILESS
        )
        return None if expected else 0
    if coding is not None or not (declared.isascii() and declared.isdigit()) or len(declared) > LONGEST_NUMBER:
        raise _RefusedError(400)
    return int(declared)


class Body:
    """A body that is on its way; a slow one holds no thread.

    Attributes:
        size: How much there is of it.
        begun: When it began.
    """

    def __init__(self, requests: Requests, call: Call) -> None:
        """Begin with nothing."""
        self.size = 0
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
        if self.size > requests.body_limit:
            self._file.close()
            requests.refuse_body(call, self.size)
            return
        if self.size > MEMORY_LIMIT and isinstance(self._file, BytesIO):
            memory, self._file = self._file, tempfile.TemporaryFile()  # noqa: SIM115 - closed with the response
            self._file.write(memory.getvalue())
        self._file.write(part)
        if message.get("more_body"):
            self.wait()
        else:
            self._file.seek(0)
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
        if self._call.environ["SERVER_PROTOCOL"] != "HTTP/2":
            # A thread that is parked may hold what granian waits for before it closes.
            self._requests.left.add(self._call.peer)
