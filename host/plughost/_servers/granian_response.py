"""A request that is answered through granian, in the turn of the dispatcher.

A response of one part is sent in one go, but for a long one over HTTP/2, which its client may hold up. Any other goes
on for as long as the client takes it; where it takes none, a callback brings the rest to the dispatcher once there is
room again. So a slow reader holds no thread.
"""

from __future__ import annotations

import contextlib
import logging
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

from plughost._servers.base import CutOffError, is_slow
from plughost._servers.responses import KNOWN_FIELDS, SLICE, WINDOW, engine_error, raw_field, slices
from plughost._servers.work import Job
from plughost._waiting import Pause
from plughost.http._fields import status_code

if TYPE_CHECKING:
    from plughost._servers.base import Address, Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.work import ThreadGroup

Message = dict[str, Any]

_LOGGER: Final = logging.getLogger("plughost._servers")
_SERVER: Final = (b"server", b"plughost")
_WHOLE: Final = (list, tuple)
_CLOSE: Final = (b"connection", b"close")
_WATCHING: Final = allocate_lock()  # around who begins to watch a client
_TAIL: Final = 6  # the last one finds room when the client has made room for all before: granian holds five parts


class Requests(Protocol):
    """What a call needs of the requests of its listener; see `granian_request.Requests`."""

    application: Application
    dispatcher: Dispatcher
    group: ThreadGroup
    options: EngineOptions
    calls: set[Call]
    waiting: set[Any]
    draining: bool

    def drop_body(self, call: Call) -> None:
        """Drop what comes of a body that was refused."""


class Later(Protocol):
    """What will come, or a sign that there is room again; a loop's future to granian."""

    def add_done_callback(self, callback: Callable[[Later], object]) -> None:
        """Have it told, in a thread of granian's pool."""

    def result(self) -> Any:
        """Return what came."""

    def cancel(self) -> bool:
        """Wait for it no longer: the callback is called now."""


class Proto(Protocol):
    """One request's way to and from its client."""

    def receive(self) -> Later:
        """Ask for the next part of the body, and after the last one for the news that the client has gone."""

    def send(self, message: Message, /) -> Later | object:
        """Send at once; what is returned has `add_done_callback` where four parts wait for the client already."""


class Watcher(Protocol):
    """A request, as granian gives it to a scheduler."""

    @property
    def scope(self) -> dict[str, Any]:
        """What ASGI calls so, and `raw_path`."""

    @property
    def proto(self) -> Proto:
        """Its way to and from the client."""

    def done(self) -> None:
        """Be finished with it: a response that has no end yet is cut off, so that no client takes it for complete."""


class Call(Job):
    """A request on its way through the application."""

    leaves_body = False  # whether the body is not read, so that the connection can't be used again
    body_ended = False  # whether granian has told the end of the body
    body: IO[bytes] | None = None  # what the application reads; closed with the response
    _headers: list[tuple[bytes, bytes]]
    _started = _gone = _watched = False
    _parts: Iterator[bytes] | None = None
    _close: Callable[[], object] | None = None
    _status = _sent = 0
    _since = _waited = 0.0  # when it began to wait for its client, and how long it waited before
    _watch: Later | None = None
    _room: Later | None = None
    _paused: Pause | None = None

    def __init__(self, requests: Requests, environ: dict[str, Any], watcher: Watcher, client: tuple[str, str]) -> None:
        self._requests = requests
        self.environ = environ
        self.watcher = watcher
        self.proto = watcher.proto
        self._client = client

    @property
    def peer(self) -> Address:
        """Address and port of the client's connection."""
        return self._client[0], int(self._client[1])

    @property
    def _is_http2(self) -> bool:
        return bool(self.environ["SERVER_PROTOCOL"] == "HTTP/2")

    def run(self) -> None:
        """Call the application, or go on with its response."""
        if self.has_begun:
            self._go_on()
        else:
            self._call(self._requests.application)

    def refuse(self) -> None:
        """Answer that the plugin has too much to do."""
        self._call(self._requests.application.refuse)

    def on_slow(self) -> None:
        """Have granian look whether a request waits.

        It starts a thread for one that no thread is free for. But where it comes while the only free thread takes
        another one, granian counts that thread as free, and looks again with the next thing to do: here is one.
        """
        with contextlib.suppress(AttributeError):  # it has just ended, or its client has gone
            if self.body_ended:
                self.proto.receive().cancel()
            else:
                self._watch_client()

    def _call(self, application: Callable[..., Iterable[bytes]]) -> None:
        try:
            body = application(self.environ, self._start_response)
            if type(body) in _WHOLE and not self._started:
                whole = body[0] if len(body) == 1 else b"".join(body)  # type: ignore[index, arg-type] # a list
                if len(whole) <= WINDOW or not self._is_http2:
                    self._end(whole)
                    return
                body = [whole]
            self._close = getattr(body, "close", None)
            self._parts = slices(body, _TAIL, self._headers if self._status else ()) if self._is_http2 else slices(body)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: an application cannot end the thread
            self._fail(error)
            return
        self.has_begun = True
        self._go_on()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if exc_info:
            if self._started:
                raise exc_info[1]
        elif self._status:
            raise AssertionError("start_response was called twice without exc_info")
        code, known = status_code(status), KNOWN_FIELDS.get
        self._headers = [known(field) or raw_field(field) for field in headers]
        self._status = code
        return self._send_part

    def _go_on(self) -> None:
        """Send what the application makes for as long as the client takes it, and nobody else waits."""
        requests = self._requests
        try:
            for part in self._parts or ():
                if self._gone:
                    break
                if not part:
                    if type(part) is Pause:
                        self._rest(part)
                        return
                    continue
                if not self._started and self._is_whole(part):
                    self._end(part)
                    return
                room = self._send_part(part)
                if room is not None:
                    self._pause(room)
                    return
                if requests.dispatcher.is_contended(self.share):
                    requests.dispatcher.submit(self)
                    return
            self._end(b"")
        except BaseException as error:  # noqa: BLE001 - see `_call`
            self._fail(error)

    def _is_whole(self, part: bytes) -> bool:
        is_whole = (b"content-length", str(len(part)).encode()) in self._headers
        if is_whole and any(self._parts or ()):
            raise AssertionError("the application wrote more than its Content-Length")
        return is_whole

    def _send_part(self, part: bytes) -> Later | None:
        """Send a part; return what tells when there is room for another, where there is none at the moment.

        Through `write` of PEP 3333 parts go out without waiting for the client: who writes can't be interrupted.
        """
        if not self._started:
            self._start()
            self._watch_client()
        self._sent += len(part)
        room = self.proto.send({"type": "http.response.body", "body": part, "more_body": True})
        return cast("Later", room) if hasattr(room, "add_done_callback") else None

    def _start(self) -> None:
        if not self._status:
            raise AssertionError("the application did not call start_response")
        headers = self._headers
        headers.append(_SERVER)
        if (self.leaves_body or self._requests.draining) and not self._is_http2:
            headers.append(_CLOSE)
        self.proto.send({"type": "http.response.start", "status": self._status, "headers": headers})
        self._started = True

    def _end(self, last: bytes) -> None:
        """Close the application's iterable, then send the end."""
        if self.has_begun:
            self._close_parts()
        if not self._gone:
            if not self._started:
                self._start()
            self.proto.send({"type": "http.response.body", "body": last})
        self._release()

    def _close_parts(self) -> None:
        close, self._close, self._parts = self._close, None, None
        if close is not None:
            close()

    def _fail(self, error: BaseException) -> None:
        """Answer 500, or leave a response without an end."""
        method, path = self.environ["REQUEST_METHOD"], self.environ["PATH_INFO"]
        if not isinstance(error, CutOffError):
            _LOGGER.error("the application failed on %s %s", method, path, exc_info=error)
        try:
            self._close_parts()
        except BaseException:
            _LOGGER.exception("the response to %s %s failed to close", method, path)
        if not self._started:
            send_error(self.proto, self.environ, 500, close=self.leaves_body or self._requests.draining)
        self._release()

    def _release(self) -> None:
        """Let go of what ends with the request; granian cuts a response off that has no end."""
        self._requests.calls.discard(self)
        if self.body is not None:
            self.body.close()
        if self._watch is not None:
            self._watch.cancel()
        if self.leaves_body:
            self._requests.drop_body(self)
        else:
            self.watcher.done()
        # These keep granian's threads and what was swapped out alive; and a parked thread or a traceback may keep this.
        del self.proto, self.watcher, self.environ

    # While the application has nothing to send.

    def _rest(self, pause: Pause) -> None:
        """Let go of the body until it goes on, which may be at once: in another thread, when this has returned."""
        self._requests.waiting.add(self)
        self._paused = pause
        if self._gone:
            pause.ready()
        pause.wait(self._proceed)

    def _proceed(self) -> None:
        self._requests.waiting.discard(self)
        self._paused = None
        self._requests.dispatcher.submit(self)

    # While the client takes its time.

    @property
    def is_stuck(self) -> bool:
        """Whether no slice went out for long: the client takes nothing, or so little that only its connection tells."""
        return self._room is not None and time.monotonic() > self._since + self._requests.options.idle_timeout

    def _pause(self, room: Later) -> None:
        here = [self]
        self._since = time.monotonic()
        self._room = room
        self._requests.waiting.add(self)
        room.add_done_callback(lambda _: self._resume(here))
        here.clear()

    def _resume(self, here: list[Call]) -> None:
        """Go on; in a thread of granian, or here at once, where the client was faster."""
        requests = self._requests
        requests.waiting.discard(self)
        self._room = None
        self._waited += time.monotonic() - self._since
        if here or self._gone:  # this may be the thread that answers, or gave up
            requests.dispatcher.submit(self)
        else:
            requests.dispatcher.run_or_queue(self, requests.group)

    def check(self, now: float) -> None:
        """Give up where the client takes too little. Let a body go on whose pause is over."""
        paused = self._paused
        if paused is not None and now > paused.until:
            paused.ready()
        now -= self._since
        # At the least rate a slice goes out in time, however much went before. A busy HTTP/2 connection tells nothing.
        if self._room is not None and (is_slow(self._waited + now, self._sent) or is_slow(now, SLICE)):
            self.give_up()

    def give_up(self) -> None:
        """Make no more of it."""
        room = self._room
        if room is not None:
            self._gone = True
            room.cancel()

    def _watch_client(self) -> None:
        """Notice that the client goes away; a body that is left tells by itself.

        Before the end of the body, granian tells one of two who ask at once that the client has gone, which it hasn't.
        """
        with _WATCHING:
            watched, self._watched = self._watched, True
        if not (watched or self.leaves_body):
            self._listen()

    def _listen(self) -> None:
        watch = self.proto.receive()
        if hasattr(watch, "add_done_callback"):
            self._watch = watch
            watch.add_done_callback(self._noticed)
        else:  # it had gone before, as granian told who asked first
            self._lose()

    def _lose(self) -> None:
        self._gone = True
        paused = self._paused
        if paused is not None:
            paused.ready()

    def _noticed(self, watch: Later) -> None:
        """Look what granian tells; in a thread of its own."""
        self._watch = None
        with contextlib.suppress(BaseException):  # cancelled with the response
            message = watch.result()
            if message["type"] == "http.disconnect":
                self._lose()
            else:  # the end of a body that is not there, or at least not awaited
                self.body_ended = not message.get("more_body")
                self._listen()


def send_error(proto: Proto, environ: dict[str, Any], status: int, *, close: bool = True) -> None:
    """Answer what the application doesn't; `close` where the connection can't be used again."""
    _, headers, body = engine_error(status, environ.get("HTTP_X_REQUEST_ID", ""))
    raw = [*map(raw_field, headers), _SERVER]
    if close and environ["SERVER_PROTOCOL"] != "HTTP/2":
        raw.append(_CLOSE)
    proto.send({"type": "http.response.start", "status": status, "headers": raw})
    proto.send({"type": "http.response.body", "body": body})
