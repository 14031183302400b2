"""ASGI to WSGI: an ASGI application that calls a WSGI one in threads.

The body of a request is received before a thread is taken. A response of one part is sent in one go; a longer one is
sent as it is made, no faster than the client takes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from plughost.engines.call import Bell, Call, Message, Send, body_message, start_message
from plughost.engines.problems import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS, engine_error

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from plughost.engines.pool import Pool

Receive = Callable[[], Awaitable[Message]]

_MEMORY_LIMIT: Final = 512 * 1024
_KNOWN_NAMES_LIMIT: Final = 512
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
_PROTOCOLS: Final = {"1": "HTTP/1.0", "1.1": "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}
_CLOSE: Final = (b"connection", b"close")


class _RefusedError(Exception):
    """A request that the application does not see; the argument is the status."""


class Adapter:
    """An ASGI application made of a WSGI one.

    Args:
        application: What is called for each request.
        pool: The threads that call it.
        loop: Where it is called.
        address: The name of the server in the environ.
        port: Its port.
        body_limit: Largest body that is read, in bytes; may be changed.
        stall_timeout: Seconds after which a client that takes nothing of a response counts as gone.

    Attributes:
        calls: What is being answered.
    """

    def __init__(
        self,
        application: WSGIApplication,
        pool: Pool,
        *,
        loop: asyncio.AbstractEventLoop,
        address: str,
        port: int,
        body_limit: int,
        stall_timeout: float,
    ) -> None:
        """Prepare what is the same for every request."""
        self.body_limit = body_limit
        self.calls: set[Call] = set()
        self._draining = False
        self._bell = Bell(loop)
        self._application = application
        self._submit = pool.submit
        self._stall_timeout = stall_timeout
        self._keys: dict[bytes, str] = {b"content-type": "CONTENT_TYPE", b"content-length": "CONTENT_LENGTH"}
        self._base: dict[str, Any] = {
            "SCRIPT_NAME": "",
            "SERVER_NAME": address,
            "SERVER_PORT": str(port),
            "SERVER_SOFTWARE": "plughost",
            "wsgi.version": (1, 0),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
        }

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            environ = self._environ(scope)
            complete = await self._receive_body(environ, receive)
        except _RefusedError as refusal:
            await self._refuse(refusal.args[0], scope, send)
            return
        call = Call(self._application, environ, self._bell, self._stall_timeout)
        if scope["http_version"] in {"1", "1.1"} and (self._draining or not complete):
            call.extra_headers = (_CLOSE,)
        self.calls.add(call)
        try:
            self._submit(call.run)
            await call.answer(receive if complete else None, send)
        finally:
            self.calls.discard(call)
        if not complete:
            await _discard(receive)

    def drain(self) -> None:
        """Have HTTP/1.1 clients close their connection after the next response."""
        self._draining = True
        for call in self.calls:
            if call.environ["SERVER_PROTOCOL"] != "HTTP/2":
                call.extra_headers = (_CLOSE,)

    def _environ(self, scope: dict[str, Any]) -> dict[str, Any]:
        """Return the environ of a request (PEP 3333), without its body.

        Raises:
            _RefusedError: The request is ambiguous (RFC 9112 3.2, 6.1).
        """
        environ = self._base.copy()
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
        for name, value in scope["headers"]:
            key = keys.get(name) or self._key(name)
            if key not in environ:
                environ[key] = value.decode("latin-1")
            elif key in {"HTTP_HOST", "CONTENT_LENGTH"}:
                raise _RefusedError(400)
            elif key:
                environ[key] += ("; " if key == "HTTP_COOKIE" else ", ") + value.decode("latin-1")
        environ.pop("", None)
        if not environ.get("HTTP_HOST"):
            if scope["http_version"] != "1":
                raise _RefusedError(400)
            environ.pop("HTTP_HOST", None)
        return environ

    def _key(self, name: bytes) -> str:
        """Return the environ key of a header; empty for one with an underscore, which could pose as another."""
        key = "" if b"_" in name else "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
        if len(self._keys) < _KNOWN_NAMES_LIMIT:
            self._keys[name] = key
        return key

    async def _receive_body(self, environ: dict[str, Any], receive: Receive) -> bool:
        """Put the body into the environ; return False when it is over the limit, and was left.

        Raises:
            _RefusedError: The body's length is ambiguous, or the body broke off.
        """
        declared = environ.get("CONTENT_LENGTH")
        coding = environ.pop("HTTP_TRANSFER_ENCODING", None)
        if declared is None:
            expected = coding is not None or (
                environ["SERVER_PROTOCOL"] == "HTTP/2" and environ["REQUEST_METHOD"] not in _BODILESS
            )
        else:
            if coding is not None or not (declared.isascii() and declared.isdigit()):
                raise _RefusedError(400)
            expected = declared.strip("0") != ""
        environ["wsgi.input"] = BytesIO()
        if not expected:
            return True
        limit = self.body_limit
        size = int(declared) if declared else 0
        if size <= limit:
            environ["wsgi.input"], size = await _receive_up_to(limit, receive)
        environ["CONTENT_LENGTH"] = str(size)
        return size <= limit

    async def _refuse(self, status: int, scope: dict[str, Any], send: Send) -> None:
        """Answer a request that the application does not see."""
        line, headers, body = engine_error(status, _header(scope, b"x-request-id"))
        extra = () if scope["http_version"] == "2" else (_CLOSE,)
        await send(start_message(line, [(name.encode(), value.encode()) for name, value in headers], extra))
        await send(body_message(body))


async def _receive_up_to(limit: int, receive: Receive) -> tuple[IO[bytes], int]:
    """Return the body and its size; where that is over the limit, an empty body and the size so far."""
    message = await receive()
    if message["type"] != "http.request":
        raise _RefusedError(400)  # chunks that are none; whoever has gone away doesn't notice
    body: IO[bytes] = BytesIO()
    part, size = message["body"], len(message["body"])
    spooled = False
    while size <= limit:
        if size > _MEMORY_LIMIT and not spooled:
            body, memory = tempfile.TemporaryFile(), body  # noqa: SIM115 - closed when the request is answered
            body.write(memory.getvalue())  # type: ignore[attr-defined]  # it is a BytesIO here
            spooled = True
        body.write(part)
        if not message.get("more_body"):
            body.seek(0)
            return body, size
        message = await receive()
        if message["type"] != "http.request":
            body.close()
            raise _RefusedError(400)
        part = message["body"]
        size += len(part)
    body.close()
    return BytesIO(), size


async def _discard(receive: Receive) -> None:
    """Read and drop a refused body while it comes, lest the connection be reset before the answer was read."""
    size = 0
    now = asyncio.get_running_loop().time
    until = now() + LINGER_SECONDS
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_IDLE_SECONDS) as patience:
            while size < LINGER_BYTES:
                message = await receive()
                if not message.get("more_body"):
                    return
                size += len(message["body"])
                patience.reschedule(min(until, now() + LINGER_IDLE_SECONDS))


def _header(scope: dict[str, Any], wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            found: bytes = value
            return found.decode("latin-1")
    return ""
