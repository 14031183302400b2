"""A connection of the waitress engine, and the job that answers its next request in the dispatcher's turn."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waitress.channel import HTTPChannel

from plughost._servers.base import is_slow
from plughost._servers.connections import bytes_taken
from plughost._servers.responses import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS
from plughost._servers.waitress_messages import Parser, PausedError, Refusal, Room, Task
from plughost._servers.work import Job, Share

if TYPE_CHECKING:
    from plughost._waiting import Pause

AHEAD_BYTES: Final = 256 * 1024
"""How much of a response is made before the client has taken what came before."""


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection; after a refusal it reads on for a while, so that the answer arrives.

    A socket closed with unread bytes is reset, and the reset may overtake the answer (RFC 9112 9.6).
    """

    error_task_class = Refusal
    parser_class = Parser

    adj: Any
    request: Any
    close_when_flushed: bool
    will_close: bool
    overloaded = False
    share: Share  # of the request that is answered
    _refused = False
    _linger_until = 0.0
    _lingered = 0
    _left: Task | None = None  # with a response that goes on later
    _paused: Pause | None = None
    _behind = 0.0  # since when the client hasn't taken all that there is, and how much it took before
    _before = _taken = _given = 0
    _last_activity = 0.0

    def task_class(self, channel: Channel, request: Any) -> Task:
        """Return what answers a request, or goes on with that."""
        task, self._left = self._left, None
        return task or Task(channel, request)

    def service(self) -> Pause | None:
        """Answer one request, or go on with that. Return until when its response is left, where it is."""
        request, left = self.requests[0], self._left
        self._refused = bool(request.error or request.oversized)
        try:
            super().service()
        except PausedError as paused:
            self._left, self._paused = paused.task, paused.pause
            self.look()
            return paused.pause
        if left is not None and left.parts is not None:
            left.parts.abandon()  # the client has gone meanwhile
        return None

    def has_room(self) -> bool:
        """Return whether another part of a response may be made: the client has taken what came before."""
        return bool(self.total_outbufs_len <= AHEAD_BYTES)

    def look(self, now: float = 0.0) -> None:
        """Let a response go on that was left, where its pause is over or its client has gone."""
        pause = self._paused
        if pause is not None and (now > pause.until or not self.connected or (type(pause) is Room and self.has_room())):
            self._paused = None
            pause.ready()

    def handle_close(self) -> None:
        """Close the connection."""
        super().handle_close()
        self.look()

    def handle_write(self) -> None:
        """Send what waits, and close when told to."""
        self._handle_write()
        self.look()

    def _handle_write(self) -> None:
        if not (self._refused and self.close_when_flushed) or self.will_close:
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if self.connected and not self.total_outbufs_len and not self.will_close:
            self.close_when_flushed = False
            self._linger_until = time.monotonic() + LINGER_SECONDS
            try:
                self.socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.will_close = True

    def handle_read(self) -> None:
        """Read from the client, or while lingering read and drop."""
        if not self._linger_until:
            super().handle_read()
            return
        self._lingered += len(self.recv(self.adj.recv_bytes))  # closes the channel at the end of the stream
        self.last_activity = 0
        self.will_close = self._lingered > LINGER_BYTES

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Send what the client takes, and count it."""
        sent: int = super().send(data, do_close)
        self._given += sent
        return sent

    def overdue(self, now: float) -> bool:
        """Return whether the client keeps the server waiting for too long."""
        idle = self.adj.channel_timeout
        if self.total_outbufs_len:
            taken = bytes_taken(self.socket, self._given)
            if taken != self._taken:
                self._taken, self.last_activity = taken, 0
            if not self._behind:
                self._behind, self._before = now, taken
            elif is_slow(now - self._behind, taken - self._before):
                return True
        else:
            self._behind = 0.0
        silent = now - self.last_activity
        if self._linger_until:
            return bool(now > self._linger_until or silent > LINGER_IDLE_SECONDS)
        if self.requests:
            return bool(self.total_outbufs_len and silent > idle)
        return bool(
            silent > idle or (self.request is not None and not self.arriving and now - self.request.born > idle)
        )

    @property
    def arriving(self) -> bool:
        """Whether a body is on its way."""
        return self.request is not None and self.request.headers_finished

    @property
    def size(self) -> int:
        """How much there is of the body."""
        return 0 if self.request.body_rcv is None else len(self.request.body_rcv)

    @property
    def client(self) -> str:
        """The address of its client, which a trusted proxy tells."""
        environ = {"REMOTE_ADDR": self.addr[0], "HTTP_X_FORWARDED_FOR": self.request.headers.get("X_FORWARDED_FOR", "")}
        return str(self.adj.application.client_of(environ))

    def refuse(self, status: int) -> None:
        """Read no more of a body."""
        with self.requests_lock:
            request, self.request = self.request, None
            request.refuse(status)
            self.requests.append(request)
            if len(self.requests) == 1:
                self.server.add_task(self)

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


class Answer(Job):
    """The next request of a connection."""

    def __init__(self, channel: Channel, share: Share) -> None:
        self._channel = channel
        self.share = share

    def refuse(self) -> None:
        """Answer that the plugin has too much to do."""
        self.run(overloaded=True)

    def run(self, *, overloaded: bool = False) -> None:
        """Answer it."""
        channel = self._channel
        channel.overloaded, channel.share = overloaded, self.share
        pause = channel.service()
        if pause is not None:
            self.has_begun = True
            pause.wait(partial(channel.server.leave, self))
