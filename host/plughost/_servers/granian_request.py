"""Requests that granian received: environs are made of them, and callbacks collect their bodies.

So a slow body holds no thread. Once a request is complete, the dispatcher runs it.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from asyncio import CancelledError
from contextlib import suppress
from io import BytesIO
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from plughost._servers.base import MEMORY_LIMIT, RECEIVED
from plughost._servers.connections import peer_address
from plughost._servers.granian_response import ListenerState, RequestJob
from plughost._servers.responses import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS, MAX_DIGITS
from plughost.http._routing import MAX_TARGET_BYTES

if TYPE_CHECKING:
    from plughost._servers.base import Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.granian_response import Future, Message, Watcher
    from plughost._servers.threads import ThreadGroup

_LOGGER: Final = logging.getLogger("plughost._servers")
_KNOWN_NAMES_LIMIT: Final = 512
_KNOWN_NAME_BYTES: Final = 64
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_PROTOCOLS: Final = {"1": "HTTP/1.0", "1.1": "HTTP/1.1", "2": "HTTP/2"}


class ListenerRequests(ListenerState):
    """The requests of a listener. `address` is the name of the server in the environ, and its port."""

    def __init__(
        self,
        application: Application,
        dispatcher: Dispatcher,
        group: ThreadGroup,
        options: EngineOptions,
        address: tuple[str, int],
    ) -> None:
        super().__init__(application, dispatcher, group, options)
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
        """Accept a request, in the thread of granian that received it. An error raised here would be lost."""
        try:
            scope = watcher.scope
            environ, size, status = self._read(scope)
            if status:
                self.send_error(watcher.proto, environ, status)
                return
            job = RequestJob(self, environ, watcher, scope["client"])
            del environ  # which this thread, parked for long below, would keep alive
            if size == 0:
                self.answer(job, BytesIO())
            elif size is not None and size > self.options.body_limit:
                self.refuse_body(job, size)
            else:
                RequestBody(self, job, size).wait()
        except BaseException:
            _LOGGER.exception("a request was not answered")

    def answer(self, job: RequestJob, body: IO[bytes]) -> None:
        """Have a complete request answered. This thread may be parked for long meanwhile."""
        if self.application.timed:
            job.environ[RECEIVED] = perf_counter()
        job.body = job.environ["wsgi.input"] = body
        self.in_flight.add(job)
        dispatcher = self.dispatcher
        job.share = dispatcher.share_of(self.application.plugin_of(job.environ))
        if not dispatcher.pool.run(job, job.environ["REQUEST_METHOD"], self.group):
            dispatcher.run_or_queue(job, self.group)

    def refuse_body(self, job: RequestJob, size: int) -> None:
        """Have the application respond that the body is over the limit."""
        job.environ["CONTENT_LENGTH"] = str(size)
        job.discard_body = self.discard_body
        self.answer(job, BytesIO())

    def discard_body(self, job: RequestJob) -> None:
        """Discard what still arrives of a refused body after its response."""
        DiscardedBody(self, job).wait()

    def _read(self, scope: dict[str, Any]) -> tuple[dict[str, Any], int | None, int]:
        """Return the environ (PEP 3333), the declared length of the body, if any, and the status of a refusal, or 0.

        Ambiguous requests are refused (RFC 9112, 3.2 and 6.1).
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
            "REMOTE_ADDR": peer_address(address),
            "REMOTE_PORT": port,
        }
        keys = self._keys
        is_repeated = False
        for name, value in scope["headers"]:
            key = keys.get(name) or self._key(name)
            if key not in environ:
                environ[key] = value.decode("latin-1")
            elif key in {"HTTP_HOST", "CONTENT_LENGTH"}:
                is_repeated = True
            elif key:
                environ[key] += ("; " if key == "HTTP_COOKIE" else ", ") + value.decode("latin-1")
        environ.pop("", None)
        host = environ.get("HTTP_HOST")
        # `*` or an authority, which name no resource here; or not a URI (RFC 3986, 2), whose query and path would be
        # decoded differently; or several hosts or lengths, or no host
        if raw[:1] != b"/" or not target.isascii() or is_repeated or not (host or version == "1"):
            return environ, 0, 400
        if len(target) > MAX_TARGET_BYTES:
            return environ, 0, 414
        if host == "":
            del environ["HTTP_HOST"]
        if "CONTENT_LENGTH" in environ or "HTTP_TRANSFER_ENCODING" in environ:
            return environ, *_declared_size(environ)
        return environ, None if version == "2" and method not in _BODILESS else 0, 0

    def _key(self, name: bytes) -> str:
        """Return the environ key of a header. Empty for one with an underscore, which could pose as another."""
        key = "" if b"_" in name else "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        if len(self._keys) < _KNOWN_NAMES_LIMIT and len(name) < _KNOWN_NAME_BYTES:
            self._keys[name] = key
        return key


def _declared_size(environ: dict[str, Any]) -> tuple[int | None, int]:
    """Return the declared length of a body, if any, and the status that refuses the request, or 0."""
    declared = environ.get("CONTENT_LENGTH")
    coding = environ.pop("HTTP_TRANSFER_ENCODING", None)
    if declared is None:
        return None, 0 if coding == "chunked" else 400
    if coding is not None or not (declared.isascii() and declared.isdigit()) or len(declared) > MAX_DIGITS:
        return 0, 400
    return int(declared), 0


class RequestBody:
    """A body that is being received. A slow one holds no thread."""

    def __init__(self, requests: ListenerRequests, job: RequestJob, declared_length: int | None = None) -> None:
        self.size = 0
        self._is_http2 = job.environ["SERVER_PROTOCOL"] == "HTTP/2"
        self._declared_length = declared_length
        self._requests = requests
        self._job = job
        self._environ = job.environ  # which the job gives up when it is answered, perhaps while `client` is asked for
        self._watcher = job.watcher
        self._file: IO[bytes] = BytesIO()
        self._last_received = self.started_at = time.monotonic()
        self._future: Future | None = None
        self._cancel_status = 408

    @property
    def client(self) -> str:
        return self._requests.application.client_of(self._environ)

    def wait(self) -> None:
        future = self._watcher.proto.receive()
        if hasattr(future, "add_done_callback"):
            self._requests.waiting.add(self)
            self._future = future
            future.add_done_callback(self._on_part)
        else:
            self._finish(400)  # the client has gone, and won't notice

    def check(self, now: float) -> None:
        """Give up if the client sends nothing, or too slowly."""
        if self._requests.options.is_overdue(
            now, started_at=self.started_at, received_at=self._last_received, size=self.size
        ):
            self._cancel()

    def refuse(self) -> None:
        """Give up because bodies take too much memory."""
        self._cancel_status = 503
        self._cancel()

    def _cancel(self) -> None:
        future = self._future
        if future is not None:
            future.cancel()

    def _on_part(self, future: Future) -> None:
        """Receive a part, in a thread of granian."""
        self._requests.waiting.discard(self)
        self._future = None
        try:
            self._append(future.result())
        except CancelledError:  # by `_cancel`
            self._finish(self._cancel_status)
        except OSError as error:  # the disk is full, for a body that is too large for memory
            _LOGGER.error("a request body can't be kept in a temporary file, in TMPDIR: %s", str(error))
            self._finish(503)
            self._requests.discard_body(self._job)
        except BaseException:  # an error raised here would be lost
            _LOGGER.exception("a body was not received")
            self._finish(500)

    def _append(self, message: Message) -> None:
        """Store a part. With the last one, have the request answered."""
        requests, job = self._requests, self._job
        if message["type"] != "http.request":
            self._finish(400)  # malformed chunks
            return
        part = message["body"]
        self.size += len(part)
        self._last_received = time.monotonic()
        if self.size > requests.options.body_limit:
            self._file.close()
            requests.refuse_body(job, self.size)
            return
        if self.size > MEMORY_LIMIT and isinstance(self._file, BytesIO):
            memory, self._file = self._file, tempfile.TemporaryFile()  # noqa: SIM115 - closed with the response
            self._file.write(memory.getvalue())
        self._file.write(part)
        # Over HTTP/2 a body ends with its stream, whatever length was declared.
        if message.get("more_body") and (self._is_http2 or self.size != self._declared_length):
            self.wait()
        elif self._declared_length not in {None, self.size}:
            self._finish(400)  # granian reports a stream that was reset with NO_ERROR as a complete body
        else:
            self._file.seek(0)
            job.body_ended = not message.get("more_body")
            job.environ["CONTENT_LENGTH"] = str(self.size)
            requests.answer(job, self._file)

    def _finish(self, status: int) -> None:
        with suppress(OSError):  # on a full disk: closing the file writes, too
            self._file.close()
        self._requests.send_error(self._job.proto, self._job.environ, status)


class DiscardedBody(RequestBody):
    """The rest of a refused body: discarded, so that no reset of the connection overtakes the response."""

    def check(self, now: float) -> None:
        """Give up if nothing arrives, or it takes long, so that the connection can be closed."""
        if now > self._last_received + LINGER_IDLE_SECONDS or now > self.started_at + LINGER_SECONDS:
            self._cancel()

    def _append(self, message: Message) -> None:
        self.size += len(message.get("body", b""))
        self._last_received = time.monotonic()
        if message.get("more_body") and self.size < LINGER_BYTES:
            self.wait()
        else:
            self._finish(0)

    def _finish(self, status: int) -> None:
        self._watcher.done()
        if not self._is_http2:
            # granian may wait for an object that a parked thread holds before it closes the connection.
            self._requests.to_disconnect.add(self._job.peer)
