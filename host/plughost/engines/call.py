"""One call of a WSGI application in a worker thread, answered from an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from plughost.engines.fields import check_status, line_break, raw_name
from plughost.engines.problems import engine_error

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

_LOGGER: Final = logging.getLogger("plughost.engines")
_PARTS_AHEAD: Final = 4
_SERVER: Final = (b"server", b"plughost")


_KNOWN: Final[dict[tuple[str, str], tuple[bytes, bytes]]] = {}
"""Fields as HTTP/2 writes them, of names whose values are few."""
_FEW: Final = frozenset({"api-version", "content-type", "vary", "x-content-type-options"})
_MOST_KNOWN: Final = 256


def _raw(field: tuple[str, str]) -> tuple[bytes, bytes]:
    """Return a field as HTTP/2 writes it.

    Raises:
        AssertionError: It is a hop-by-hop field, which is the server's.
        ValueError: It is no field, or would begin another line.
    """
    name, value = field
    if "\n" in value or "\r" in value:
        raise line_break(name)
    raw = raw_name(name), value.encode("latin-1")
    if name in _FEW and len(_KNOWN) < _MOST_KNOWN:
        _KNOWN[field] = raw
    return raw


class ClientGoneError(Exception):
    """The client went away, or takes nothing any more."""


def start_message(status: str, headers: RawHeaders, extra: tuple[tuple[bytes, bytes], ...] = ()) -> Message:
    """Return the message that begins a response."""
    return {"type": "http.response.start", "status": int(status[:3]), "headers": [*headers, _SERVER, *extra]}


def body_message(body: bytes, *, more: bool = False) -> Message:
    """Return the message with a part of the body."""
    return {"type": "http.response.body", "body": body, "more_body": more}


class Bell:
    """Wakes calls in the loop's thread, with one wake-up of the loop for all that wait for one.

    Args:
        loop: Where the calls are answered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin silent."""
        self.loop = loop
        self._calls: deque[Call] = deque()
        self._rung = False

    def ring(self, call: Call) -> None:
        """Have a call woken; from any thread."""
        self._calls.append(call)
        if not self._rung:
            self._rung = True
            with contextlib.suppress(RuntimeError):  # the loop was closed: the drain's grace was over
                self.loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._rung = False  # before the calls are taken: one that comes later rings again
        calls = self._calls
        while calls:
            calls.popleft().wake()


class Call:
    """A request on its way through the application.

    `run` belongs to a worker thread, `answer` to the loop. The worker hands over parts, and wakes the loop; the loop
    hands back room for more.

    Args:
        application: What is called.
        environ: The request, complete.
        bell: Wakes it in the loop where it is answered.
        stall_timeout: Seconds that the worker waits for the client to take a part.

    Attributes:
        environ: The request.
        peer: Address and port of the client's connection.
        extra_headers: What the engine adds to the response.
    """

    __slots__ = (
        "_application",
        "_bell",
        "_body",
        "_ended",
        "_failed",
        "_gone",
        "_headers",
        "_input",
        "_parts",
        "_room",
        "_stall_timeout",
        "_status",
        "_streams",
        "_waiter",
        "environ",
        "extra_headers",
        "peer",
    )

    def __init__(
        self,
        application: WSGIApplication,
        environ: dict[str, Any],
        bell: Bell,
        stall_timeout: float,
    ) -> None:
        """Begin with nothing answered."""
        self.environ = environ
        self.extra_headers: tuple[tuple[bytes, bytes], ...] = ()
        self._application = application
        self.peer = environ["REMOTE_ADDR"], int(environ["REMOTE_PORT"])  # which a middleware may change
        self._input = environ["wsgi.input"]  # likewise
        self._bell = bell
        self._stall_timeout = stall_timeout
        self._status = ""
        self._headers: RawHeaders = []
        self._body = b""
        self._streams = self._ended = self._failed = self._gone = False
        self._waiter: asyncio.Future[None] = bell.loop.create_future()
        self._parts: deque[bytes] = deque()
        self._room: threading.Semaphore | None = None

    # In the worker's thread.

    def run(self) -> None:
        """Call the application, and hand over what it answers."""
        try:
            iterable = self._application(self.environ, self._start_response)
            try:
                self._take(iterable)
            finally:
                close = getattr(iterable, "close", None)
                if close is not None:
                    close()
        except ClientGoneError:
            self._gone = True
        except BaseException:  # SystemExit too: an application cannot end the thread
            self._failed = True
            _LOGGER.exception(
                "the application failed on %s %s", self.environ["REQUEST_METHOD"], self.environ["PATH_INFO"]
            )
        finally:
            self._ended = True
            self._bell.ring(self)
            self._input.close()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], None]:
        if exc_info:
            if self._streams:
                raise exc_info[1]
        elif self._status:
            raise AssertionError("start_response was called twice without exc_info")
        check_status(status)
        self._status, self._headers = status, [_KNOWN.get(field) or _raw(field) for field in headers]
        return self._push

    def _take(self, iterable: Iterable[bytes]) -> None:
        """Hand over the body, in one go where it is known to be complete."""
        if type(iterable) in {list, tuple} and not self._streams:
            self._body = b"".join(iterable)
            if not self._status:
                raise AssertionError("the application did not call start_response")
            return
        for part in iterable:
            if not part:
                continue
            if not self._streams and self._is_whole(part):
                self._body = part
                for excess in iterable:
                    if excess:
                        raise AssertionError("the application wrote more than its Content-Length")
                return
            self._push(part)
        if not self._status:
            raise AssertionError("the application did not call start_response")

    def _is_whole(self, part: bytes) -> bool:
        length = str(len(part)).encode()
        return any(name == b"content-length" and value == length for name, value in self._headers)

    def _push(self, part: bytes) -> None:
        """Hand over a part of the body; wait where the client is behind.

        Raises:
            ClientGoneError: It takes nothing any more.
        """
        if not self._status:
            raise AssertionError("the application wrote before it called start_response")
        if self._room is None:
            self._room = threading.Semaphore(_PARTS_AHEAD)
            self._streams = True
        if not part:
            return
        if self._gone or not self._room.acquire(timeout=self._stall_timeout) or self._gone:
            raise ClientGoneError
        self._parts.append(part)
        self._bell.ring(self)

    # In the loop's thread.

    def wake(self) -> None:
        """Look again at what the worker has handed over."""
        if not self._waiter.done():
            self._waiter.set_result(None)

    async def answer(self, receive: Receive | None, send: Send) -> None:
        """Send the response; leave one that failed half-way without an end, which granian makes a reset.

        Args:
            receive: Tells when the client goes away; None when a body is left unread.
            send: Sends a message to the client.
        """
        await self._waiter
        if self._streams:
            await self._stream(receive, send)
            return
        if not self._failed:
            try:
                await send(start_message(self._status, self._headers, self.extra_headers))
            except Exception:
                _LOGGER.exception("the response to %s cannot be sent", self.environ["PATH_INFO"])
                self._failed = True
        if self._failed:
            line, headers, self._body = engine_error(500, self.environ.get("HTTP_X_REQUEST_ID", ""))
            raw = [(name.encode(), value.encode()) for name, value in headers]
            await send(start_message(line, raw, self.extra_headers))
        await send(body_message(self._body))

    async def _stream(self, receive: Receive | None, send: Send) -> None:
        watch = asyncio.ensure_future(self._watch(receive)) if receive is not None else None
        try:
            await send(start_message(self._status, self._headers, self.extra_headers))
            while True:
                ended = self._ended  # before the parts are taken: what came until then is sent
                if self._parts and not self._gone:
                    await self._send_parts(send)
                elif ended or self._gone:
                    break
                else:
                    await self._waiter
                    self._waiter = self._bell.loop.create_future()
        finally:
            if watch is not None:
                watch.cancel()
            if not self._ended:
                self._leave()
        if not (self._failed or self._gone):
            await send(body_message(b""))

    async def _send_parts(self, send: Send) -> None:
        parts = self._parts
        taken = [parts.popleft() for _ in range(len(parts))]
        await send(body_message(taken[0] if len(taken) == 1 else b"".join(taken), more=True))
        if self._room is not None:
            self._room.release(len(taken))

    async def _watch(self, receive: Receive) -> None:
        """Notice that the client goes away."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        """Make the worker stop."""
        self._gone = True
        self.wake()
        if self._room is not None:
            self._room.release(_PARTS_AHEAD)
