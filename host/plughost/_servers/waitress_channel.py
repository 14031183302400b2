"""A connection of the waitress engine, and the job that answers its next request."""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waitress.channel import HTTPChannel

from plughost._servers.base import is_slow
from plughost._servers.connections import bytes_acknowledged
from plughost._servers.responses import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS
from plughost._servers.waitress_messages import FlowPause, Parser, PausedError, ProblemTask, Task
from plughost._servers.work import Job, Share

if TYPE_CHECKING:
    from plughost._waiting import Pause

SEND_AHEAD_BYTES: Final = 256 * 1024
"""How much of a response may be buffered ahead of the client."""


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection. After a refusal it reads on for a while, so that the response arrives.

    A socket closed with unread bytes is reset, and the reset may overtake the response (RFC 9112 9.6).
    """

    error_task_class = ProblemTask
    parser_class = Parser

    adj: Any
    request: Any
    close_when_flushed: bool
    will_close: bool
    is_overloaded = False
    share: Share  # of the request that is answered
    _has_refused = False
    _linger_until = 0.0
    _lingered_bytes = 0
    _suspended_task: Task | None = None  # its response continues later
    _current_pause: Pause | None = None
    _behind_since = 0.0  # since when the client hasn't read all, and how much it had read then
    _acknowledged_before = _acknowledged = _sent = 0
    _last_activity = 0.0

    def task_class(self, channel: Channel, request: Any) -> Task:
        """Return the task that answers a request, or the suspended one."""
        task, self._suspended_task = self._suspended_task, None
        return task or Task(channel, request)

    def service(self) -> Pause | None:
        """Answer one request, or continue its response. Return the pause of a response that is suspended."""
        request, suspended = self.requests[0], self._suspended_task
        self._has_refused = bool(request.error or request.oversized)
        try:
            super().service()
        except PausedError as paused:
            self._suspended_task, self._current_pause = paused.task, paused.pause
            self.resume_if_ready()
            return paused.pause
        if suspended is not None and suspended.resumable_body is not None:
            suspended.resumable_body.abandon()  # the client has gone meanwhile
        return None

    def has_room(self) -> bool:
        """Return whether the client has read enough for another part of a response."""
        return bool(self.total_outbufs_len <= SEND_AHEAD_BYTES)

    def resume_if_ready(self, now: float = 0.0) -> None:
        """Resume a suspended response if its pause is over or its client has gone."""
        pause = self._current_pause
        if pause is not None and (
            now > pause.until or not self.connected or (type(pause) is FlowPause and self.has_room())
        ):
            self._current_pause = None
            pause.ready()

    def handle_close(self) -> None:
        super().handle_close()
        self.resume_if_ready()

    def handle_write(self) -> None:
        if self._has_refused and self.close_when_flushed and not self.will_close:
            self._flush_exception(self._flush_some)
            if self.connected and not self.total_outbufs_len and not self.will_close:
                self.close_when_flushed = False
                self._linger_until = time.monotonic() + LINGER_SECONDS
                try:
                    self.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    self.will_close = True
        else:
            super().handle_write()
        self.resume_if_ready()

    def handle_read(self) -> None:
        """Read from the client. While lingering, discard what is read."""
        if not self._linger_until:
            super().handle_read()
            return
        self._lingered_bytes += len(self.recv(self.adj.recv_bytes))  # closes the channel at the end of the stream
        self.last_activity = 0
        self.will_close = self._lingered_bytes > LINGER_BYTES

    def send(self, data: bytes, do_close: bool = True) -> int:
        sent: int = super().send(data, do_close)
        self._sent += sent
        return sent

    def is_overdue(self, now: float) -> bool:
        idle = self.adj.channel_timeout
        if self.total_outbufs_len:
            acknowledged = bytes_acknowledged(self.socket, self._sent)
            if acknowledged != self._acknowledged:
                self._acknowledged, self.last_activity = acknowledged, 0
            if not self._behind_since:
                self._behind_since, self._acknowledged_before = now, acknowledged
            elif is_slow(now - self._behind_since, acknowledged - self._acknowledged_before):
                return True
        else:
            self._behind_since = 0.0
        silent = now - self.last_activity
        if self._linger_until:
            return bool(now > self._linger_until or silent > LINGER_IDLE_SECONDS)
        if self.requests:
            return bool(self.total_outbufs_len and silent > idle)
        if self.is_receiving:
            return False  # the body has limits of its own, beyond which it is answered
        return bool(silent > idle or (self.request is not None and now - self.request.started_at > idle))

    @property
    def is_receiving(self) -> bool:
        return self.request is not None and self.request.headers_finished

    @property
    def size(self) -> int:
        return 0 if self.request.body_rcv is None else len(self.request.body_rcv)

    @property
    def client(self) -> str:
        environ = {"REMOTE_ADDR": self.addr[0], "HTTP_X_FORWARDED_FOR": self.request.headers.get("X_FORWARDED_FOR", "")}
        return str(self.adj.application.client_of(environ))

    def refuse(self, status: int) -> None:
        """Stop receiving a body, and respond with an error."""
        with self.requests_lock:
            request, self.request = self.request, None
            request.refuse(status)
            self.requests.append(request)
            if len(self.requests) == 1:
                self.server.add_task(self)

    def is_busy(self) -> bool:
        """Return whether a request is being answered, or its response is being sent."""
        return bool(self.requests or self.total_outbufs_len or self.close_when_flushed)

    @property
    def last_activity(self) -> float:
        """When something was last received or sent, by `time.monotonic()`."""
        return self._last_activity

    @last_activity.setter
    def last_activity(self, _: float) -> None:
        """Note that something was. Waitress tells the time of day, which may be set meanwhile."""
        self._last_activity = time.monotonic()


class ChannelJob(Job):
    """The next request of a connection."""

    def __init__(self, channel: Channel, share: Share) -> None:
        self._channel = channel
        self.share = share

    def refuse(self) -> None:
        self.run(is_overloaded=True)

    def run(self, *, is_overloaded: bool = False) -> None:
        channel = self._channel
        channel.is_overloaded, channel.share = is_overloaded, self.share
        pause = channel.service()
        if pause is not None:
            self.has_begun = True
            pause.wait(partial(channel.server.submit, self))
