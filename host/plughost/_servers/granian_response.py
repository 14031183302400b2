"""A request that the dispatcher runs and granian sends the response of.

A response of one part is sent at once, except a long one over HTTP/2, which the client may delay. Any other is sent as
the client reads it. When it doesn't, a callback brings the rest back to the dispatcher once there is room again. So a
slow reader holds no thread.
"""

from __future__ import annotations

import contextlib
import logging
import time
from _thread import allocate_lock
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

from plughost._servers.base import CutOffError, is_slow
from plughost._servers.responses import FIELD_CACHE, HTTP2_WINDOW, SLICE, encode_field, engine_error, slices
from plughost._servers.work import Job
from plughost._waiting import Pause
from plughost.http._response import status_code

if TYPE_CHECKING:
    from plughost._servers.base import Address, Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.threads import ThreadGroup

Message = dict[str, Any]

_LOGGER: Final = logging.getLogger("plughost._servers")
_SERVER: Final = (b"server", b"plughost")
_LIST_TYPES: Final = (list, tuple)
_CLOSE: Final = (b"connection", b"close")
_WATCH_LOCK: Final = allocate_lock()  # so that only one thread begins to watch a client
_COUNTED_BYTES: Final = 1024  # of a response: smaller ones take less memory than their streams
_TAIL: Final = 6  # when the last one finds room, the client has taken all before: granian holds five parts


class ListenerState:
    """What a request needs from its listener, and what its engine wants to know of its requests."""

    def __init__(
        self, application: Application, dispatcher: Dispatcher, group: ThreadGroup, options: EngineOptions
    ) -> None:
        self.application = application
        self.dispatcher = dispatcher
        self.group = group  # the threads that receive them
        self.options = options  # may be changed
        self.in_flight: set[RequestJob] = set()
        self.waiting: set[Any] = set()  # requests and bodies that wait for their clients
        self.to_disconnect: set[Address] = set()  # clients whose refused body is no longer read
        # Bytes of responses that granian was given at once, by client's address and port. If two threads add to a
        # number at the same time, one may be lost, which does no harm.
        self.sent: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.is_draining = False  # whether the next HTTP/1.1 response says `Connection: close`

    def send_error(self, proto: HTTPProtocol, environ: dict[str, Any], status: int, *, close: bool = True) -> None:
        """Send an error response. `close` if the connection can't be used again."""
        _, headers, body = engine_error(
            status, environ.get("HTTP_X_REQUEST_ID", ""), self.application.errors_of(environ)
        )
        raw = [*map(encode_field, headers), _SERVER]
        if close and environ["SERVER_PROTOCOL"] != "HTTP/2":
            raw.append(_CLOSE)
        proto.send({"type": "http.response.start", "status": status, "headers": raw})
        # Over HTTP/2, granian would send the body of a HEAD, which makes the response malformed (RFC 9113, 8.1.1).
        proto.send({"type": "http.response.body", "body": b"" if environ["REQUEST_METHOD"] == "HEAD" else body})


class Future(Protocol):
    """A future of granian's, for a message or for room to send more. It calls back in a thread of granian's pool."""

    def add_done_callback(self, callback: Callable[[Future], object]) -> None: ...
    def result(self) -> Any: ...
    def cancel(self) -> bool:
        """Stop waiting: the callback is called now."""


class HTTPProtocol(Protocol):
    """The channel to and from the client of one request."""

    def receive(self) -> Future:
        """Request the next part of the body, or after the last one the message that the client has gone."""

    def send(self, message: Message, /) -> Future | object:
        """Send at once. What is returned has `add_done_callback` where four parts wait for the client already."""


class Watcher(Protocol):
    """A request, as granian gives it to a scheduler. Its scope is ASGI's, and has `raw_path`, too."""

    @property
    def scope(self) -> dict[str, Any]: ...
    @property
    def proto(self) -> HTTPProtocol: ...
    def done(self) -> None:
        """Release it. A response without its end is cut off, so that no client takes it for complete."""


class RequestJob(Job):
    """A request on its way through the application."""

    # Of a refused body: discards what arrives after the response. Then the connection can't be used again.
    discard_body: Callable[[RequestJob], None] | None = None
    body_ended = False  # whether granian has reported the end of the body
    body: IO[bytes] | None = None  # what the application reads; closed with the response
    _headers: list[tuple[bytes, bytes]]
    _is_started = _is_client_gone = _is_watched = False
    _parts: Iterator[bytes] | None = None
    _close_body: Callable[[], object] | None = None
    _status = _sent = 0
    _blocked_since = _blocked_seconds = 0.0  # when it began to wait for its client, and for how long it waited before
    _disconnect_future: Future | None = None
    _room: Future | None = None
    _current_pause: Pause | None = None

    def __init__(
        self, requests: ListenerState, environ: dict[str, Any], watcher: Watcher, client: tuple[str, str]
    ) -> None:
        self._requests = requests
        self.environ = environ
        self.watcher = watcher
        self.proto = watcher.proto
        self._live_proto: HTTPProtocol | None = self.proto  # for other threads; None once the response has ended
        self._client = client

    @property
    def peer(self) -> Address:
        return self._client[0], int(self._client[1])

    @property
    def _is_http2(self) -> bool:
        return bool(self.environ["SERVER_PROTOCOL"] == "HTTP/2")

    def run(self) -> None:
        """Call the application, or continue its response."""
        if self.has_begun:
            self._send_parts()
        else:
            self._call_application(self._requests.application)

    def refuse(self) -> None:
        self._call_application(self._requests.application.refuse)

    def on_slow(self) -> None:
        """Have granian check whether a request waits for a thread.

        It starts a thread for a request when none is free. But if one arrives while the only free thread takes another,
        granian counts that thread as free, and checks again only at the next event: this makes one.
        """
        proto = self._live_proto
        if proto is not None and self.body_ended:
            future = proto.receive()
            if hasattr(future, "cancel"):  # else the client has gone
                future.cancel()
        elif proto is not None:
            self._watch_client(proto)

    def _call_application(self, application: Callable[..., Iterable[bytes]]) -> None:
        try:
            body = application(self.environ, self._start_response)
            if type(body) in _LIST_TYPES and not self._is_started:
                whole = body[0] if len(body) == 1 else b"".join(body)  # type: ignore[index, arg-type] # a list
                if len(whole) <= HTTP2_WINDOW or not self._is_http2:
                    self._finish(whole)
                    return
                body = [whole]
            self._close_body = getattr(body, "close", None)
            self._parts = slices(body, _TAIL, self._headers if self._status else ()) if self._is_http2 else slices(body)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: an application cannot end the thread
            self._fail(error)
            return
        self.has_begun = True
        self._send_parts()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if exc_info:
            if self._is_started:
                raise exc_info[1]
        elif self._status:
            raise AssertionError("start_response was called twice without exc_info")
        code, known = status_code(status), FIELD_CACHE.get
        self._headers = [known(field) or encode_field(field) for field in headers]
        self._status = code
        return self._send_part

    def _send_parts(self) -> None:
        """Send the application's parts while the client reads them and nobody else waits."""
        requests = self._requests
        try:
            for part in self._parts or ():
                if self._is_client_gone:
                    break
                if not part:
                    if type(part) is Pause:
                        self._suspend(part)
                        return
                    continue
                if not self._is_started and self._is_whole(part):
                    self._finish(part)
                    return
                room = self._send_part(part)
                if room is not None:
                    self._wait_for_room(room)
                    return
                if requests.dispatcher.is_contended(self.share):
                    requests.dispatcher.submit(self)
                    return
            self._finish(b"")
        except BaseException as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _is_whole(self, part: bytes) -> bool:
        is_whole = (b"content-length", str(len(part)).encode()) in self._headers
        if is_whole and any(self._parts or ()):
            raise AssertionError("the application wrote more than its Content-Length")
        return is_whole

    def _send_part(self, part: bytes) -> Future | None:
        """Send a part. Return a future for room to send more if there is none now.

        Parts written through `write` of PEP 3333 don't wait for the client, because their writer can't be interrupted.
        """
        if not self._is_started:
            self._send_head()
            self._watch_client(self.proto)
        self._sent += len(part)
        room = self.proto.send({"type": "http.response.body", "body": part, "more_body": True})
        return cast("Future", room) if hasattr(room, "add_done_callback") else None

    def _send_head(self) -> None:
        if not self._status:
            raise AssertionError("the application did not call start_response")
        headers = self._headers
        headers.append(_SERVER)
        if (self.discard_body or self._requests.is_draining) and not self._is_http2:
            headers.append(_CLOSE)
        self.proto.send({"type": "http.response.start", "status": self._status, "headers": headers})
        self._is_started = True

    def _finish(self, last: bytes) -> None:
        """Close the application's iterable, then send the end."""
        if self.has_begun:
            self._end_body()
        if not self._is_client_gone:
            if not self._is_started:
                self._send_head()
            self.proto.send({"type": "http.response.body", "body": last})
            if len(last) > _COUNTED_BYTES:
                self._requests.sent[self._client] += len(last)
        self._release()

    def _end_body(self) -> None:
        close, self._close_body, self._parts = self._close_body, None, None
        if close is not None:
            close()

    def _fail(self, error: BaseException) -> None:
        """Respond 500, or cut off a response that has begun."""
        method, path = self.environ["REQUEST_METHOD"], self.environ["PATH_INFO"]
        if not isinstance(error, CutOffError):
            _LOGGER.error("the application failed on %s %s", method, path, exc_info=error)
        try:
            self._end_body()
        except BaseException:
            _LOGGER.exception("the response to %s %s failed to close", method, path)
        if not self._is_started:
            close_too = bool(self.discard_body) or self._requests.is_draining
            self._requests.send_error(self.proto, self.environ, 500, close=close_too)
        self._release()

    def _release(self) -> None:
        """Release what ends with the request. Granian cuts off a response without an end."""
        self._requests.in_flight.discard(self)
        if self.body is not None:
            self.body.close()
        if self._disconnect_future is not None:
            self._disconnect_future.cancel()
        if self.discard_body:
            self.discard_body(self)
        else:
            self.watcher.done()
        # A parked thread or traceback may keep this object, and these would keep granian's threads and old apps alive.
        self._live_proto = None
        del self.proto, self.watcher, self.environ

    # While the application pauses.

    def _suspend(self, pause: Pause) -> None:
        """Suspend the body until its pause ends, perhaps at once, in another thread."""
        self._requests.waiting.add(self)
        self._current_pause = pause
        if self._is_client_gone:
            pause.ready()
        pause.wait(self._resume_body)

    def _resume_body(self) -> None:
        self._requests.waiting.discard(self)
        self._current_pause = None
        self._requests.dispatcher.submit(self)

    # While the client is slow.

    @property
    def is_stuck(self) -> bool:
        """Whether no slice was sent for long: the client reads nothing, or so little that only its connection tells."""
        return self._room is not None and time.monotonic() > self._blocked_since + self._requests.options.idle_timeout

    def _wait_for_room(self, room: Future) -> None:
        here = [self]
        self._blocked_since = time.monotonic()
        self._room = room
        self._requests.waiting.add(self)
        room.add_done_callback(lambda _: self._on_room(here))
        here.clear()

    def _on_room(self, here: list[RequestJob]) -> None:
        """Continue, in a thread of granian, or in this one if the client was faster."""
        requests = self._requests
        requests.waiting.discard(self)
        self._room = None
        self._blocked_seconds += time.monotonic() - self._blocked_since
        if here or self._is_client_gone:  # this may be the thread that sends the response, or abandons it
            requests.dispatcher.submit(self)
        else:
            requests.dispatcher.run_or_queue(self, requests.group)

    def check(self, now: float) -> None:
        """Give up if the client reads too slowly. Resume a body whose pause is over."""
        paused = self._current_pause
        if paused is not None and now > paused.until:
            paused.ready()
        now -= self._blocked_since
        # Each slice must be sent at the minimum rate, however fast others were. A busy HTTP/2 connection tells nothing.
        if self._room is not None and (is_slow(self._blocked_seconds + now, self._sent) or is_slow(now, SLICE)):
            self.abandon()

    def abandon(self) -> None:
        room = self._room
        if room is not None:
            self._is_client_gone = True
            room.cancel()

    def _watch_client(self, proto: HTTPProtocol) -> None:
        """Notice that the client goes away. For an unread body, `DiscardedBody` does.

        If two ask at once before the body has ended, granian wrongly tells one of them that the client has gone.
        """
        with _WATCH_LOCK:
            watched, self._is_watched = self._is_watched, True
        if not (watched or self.discard_body):
            self._await_disconnect(proto)

    def _await_disconnect(self, proto: HTTPProtocol) -> None:
        future = proto.receive()
        if hasattr(future, "add_done_callback"):
            self._disconnect_future = future
            future.add_done_callback(self._on_message)
        else:  # the client had gone before, as granian reported at first
            self._on_disconnect()

    def _on_disconnect(self) -> None:
        self._is_client_gone = True
        paused = self._current_pause
        if paused is not None:
            paused.ready()

    def _on_message(self, future: Future) -> None:
        self._disconnect_future = None
        message, proto = None, self._live_proto
        with contextlib.suppress(BaseException):  # cancelled with the response
            message = future.result()
        if message is None or proto is None:
            return
        if message["type"] == "http.disconnect":
            self._on_disconnect()
        else:  # the end of a body that is missing, or that nobody reads
            self.body_ended = not message.get("more_body")
            self._await_disconnect(proto)
