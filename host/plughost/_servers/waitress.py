"""The engine for plain HTTP/1.1 in pure Python: waitress, with requests answered in the turn of the dispatcher.

waitress's own loop moves the bytes, `Parser` reads a request, the dispatcher calls `Answer.run`, and waitress's own
channel and task write the response. What is changed here: refused bodies, connections that stay, and the drain.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer

from plughost._servers.answers import LINGER_BYTES, LINGER_IDLE_SECONDS, LINGER_SECONDS
from plughost._servers.base import CROWDED_SECONDS, giving_way, is_slow
from plughost._servers.connections import BACKLOG, OUT_OF_FILES, open_socket
from plughost._servers.dispatcher import Dispatcher, Job, Lane
from plughost._servers.waitress_messages import REFUSED, Parser, Refusal, Task

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions

_QUIET_SECONDS: Final = 0.25  # for how long an idle connection stays open while draining: a request may be on its way
_STALLED_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.25
_AHEAD_BYTES: Final = 256 * 1024  # how much of a response is made before the client has taken what came before
_LOGGER: Final = logging.getLogger("plughost._servers")


class Channel(HTTPChannel):  # type: ignore[misc]  # waitress is untyped
    """A connection; after a refusal it reads on for a while, so that the answer arrives.

    A socket closed with unread bytes is reset, and the reset may overtake the answer (RFC 9112 9.6).
    """

    task_class = Task
    error_task_class = Refusal
    parser_class = Parser

    adj: Any
    request: Any
    close_when_flushed: bool
    will_close: bool
    overloaded = False
    _refused = False
    _linger_until = 0.0
    _lingered = 0
    _behind = 0.0  # since when the client hasn't taken all that there is, and how much it took since
    _sent = 0
    _last_activity = 0.0

    def service(self) -> None:
        """Answer one request."""
        request = self.requests[0]
        self._refused = bool(request.error or request.oversized)
        super().service()

    def handle_write(self) -> None:
        """Send what waits, and close when told to."""
        if not (self._refused and self.close_when_flushed) or self.will_close:
            super().handle_write()
            return
        self._flush_exception(self._flush_some)
        if not self.total_outbufs_len and not self.will_close:
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
        self._sent += sent
        return sent

    def overdue(self, now: float) -> bool:
        """Return whether the client keeps the server waiting for too long."""
        idle, silent = self.adj.channel_timeout, now - self.last_activity
        if self._linger_until:
            return bool(now > self._linger_until or silent > LINGER_IDLE_SECONDS)
        if not self.total_outbufs_len:
            self._behind = 0.0
        elif not self._behind:
            self._behind, self._sent = now, 0
        elif is_slow(now - self._behind, self._sent):
            return True
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

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel, lane: Lane) -> None:
        """Begin with nothing done."""
        self._channel = channel
        self.lane = lane
        self.begun = False
        self.since = 0.0

    def run(self) -> None:
        """Answer it."""
        self._channel.overloaded = False
        self._channel.service()

    def refuse(self) -> None:
        """Answer that the plugin has too much to do."""
        self._channel.overloaded = True
        self._channel.service()


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    """waitress's server; it is cared for and can be drained.

    Attributes:
        draining: Whether no more connections are accepted.
    """

    channel_class = Channel
    draining = False
    active_channels: dict[int, Channel]
    next_channel_cleanup = math.inf  # waitress compares it with the time of day; see `take_care`
    _care = 0.0

    def add_task(self, channel: Channel) -> None:
        """Have the next request of a connection answered in the dispatcher's turn."""
        request, application = channel.requests[0], self.adj.application
        plugin = "" if request.error else application.plugin_of({"REQUEST_URI": request.request_uri})
        self.task_dispatcher.leave(Answer(channel, self.task_dispatcher.lane(plugin)))

    def turn(self, seconds: float) -> None:
        """Move what bytes can be moved, once; wait for some at most for so many seconds."""
        wasyncore.loop(seconds, use_poll=True, map=self._map, count=1)
        now = time.monotonic()
        if now > self._care:
            self._care = now + min(_LOOK_SECONDS, self.adj.channel_timeout / 4)
            self._take_care(now)

    def _take_care(self, now: float) -> None:
        """Close connections that keep the server waiting; at the limit, also idle ones of whoever holds most."""
        self.accepting = not self.draining
        options = self.adj.options
        for channel in list(self.active_channels.values()):
            if channel.overdue(now):
                channel.handle_close()  # `will_close` would wait until the client takes something
            elif channel.arriving:
                born, since = channel.request.born, channel.last_activity
                if options.is_late(now, begun=born, since=since, size=channel.size):
                    channel.refuse(408)
        arriving = [each for each in self.active_channels.values() if each.arriving]
        for channel in giving_way(sorted(arriving, key=lambda each: each.request.born), options.body_memory):
            channel.refuse(503)
        if self.in_connection_overflow:
            most, _ = Counter(each.addr[0] for each in self.active_channels.values()).most_common(1)[0]
            idle = [each for each in self.active_channels.values() if each.addr[0] == most and not each.busy()]
            idle.sort(key=lambda each: each.last_activity)
            for channel in idle[: max(1, self.adj.connection_limit // 2)]:
                if now - channel.last_activity > CROWDED_SECONDS:
                    channel.handle_close()

    def accept(self) -> Any:
        """Accept a connection; without a descriptor for it, pause until connections are looked at next."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.accepting = False
            raise

    def accept_rest(self) -> None:
        """Accept every connection that waits in the backlog, then close the listening socket."""
        self.draining = True
        before = -1
        while before != len(self.active_channels) and len(self._map) < self.adj.connection_limit:
            before = len(self.active_channels)
            self.handle_accept()
        self.accepting = False
        wasyncore.dispatcher.close(self)

    def cut_off(self) -> None:
        """Close the connections that are left, at once."""
        for channel in list(self.active_channels.values()):
            channel.handle_close()


class WaitressEngine:
    """Serves an application over HTTP/1.1; see `Engine`.

    Args:
        application: What is called for each request.
        listener: Where it is reached.
        options: Threads, limits and time-outs.
        dispatcher: Whose threads call it; its own by default.
    """

    def __init__(
        self,
        application: Application,
        listener: Listener,
        options: EngineOptions,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Prepare; nothing is opened before `start`."""
        self.port = listener.port
        self._application = application
        self._listener = listener
        self._options = options
        self._body_limit = options.body_limit
        self._server: Server | None = None
        self._dispatcher = dispatcher
        self._own: Dispatcher | None = None
        self._loop: threading.Thread | None = None
        self._deadline = 0.0
        self._drain_requested = False
        self._answered = True

    def start(self, inherited: socket.socket | None = None) -> None:
        """Open the listener and serve."""
        listening = open_socket(self._listener, inherited)
        self.port = listening.getsockname()[1]
        self._drain_requested = False
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self._own = Dispatcher(self._options.threads, share=self._options.threads)
        self._server = Server(
            self._call,
            map={},
            _sock=listening,
            dispatcher=dispatcher,
            adj=self._adjustments(),
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
        )
        self._loop = threading.Thread(target=self._run, args=(self._server,), name=f"waitress-{self.port}", daemon=True)
        self._loop.start()

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on."""
        self._body_limit = limit
        if self._server is not None:
            self._server.adj.body_limit = limit

    def drain(self, grace: float) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads."""
        if self._loop is None or self._server is None:
            return True
        self._deadline = time.monotonic() + grace
        self._drain_requested = True
        with contextlib.suppress(OSError):  # the loop has ended already
            self._server.pull_trigger()
        self._loop.join()
        if self._own is not None:
            self._own.close(max(0.1, self._deadline - time.monotonic()) if self._answered else 0.1)
        self._server.pull_trigger = lambda: None  # a thread that outlived the grace wakes nobody
        wasyncore.close_all(self._server._map, ignore_all=True)  # noqa: SLF001 - as waitress's own `close` of several
        self._server = self._own = self._loop = None
        return self._answered

    def _call(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        refused = environ.pop(REFUSED)
        return (self._application.refuse if refused else self._application)(environ, start_response)

    def _adjustments(self) -> Any:
        options = self._options
        adjustments = Adjustments(
            host="127.0.0.1",
            port=self.port,
            backlog=BACKLOG,
            connection_limit=options.connection_limit,
            channel_timeout=options.idle_timeout,
            channel_request_lookahead=1,
            max_request_body_size=sys.maxsize,
            max_request_header_size=64 * 1024,
            inbuf_overflow=512 * 1024,
            outbuf_high_watermark=_AHEAD_BYTES,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=False,
            server_name=self._listener.address,
            ident="plughost",
        )
        adjustments.application = self._application
        adjustments.body_limit = self._body_limit
        adjustments.options = options
        return adjustments

    def _run(self, server: Server) -> None:
        """Move bytes until drained; the life of the loop's thread."""
        try:
            while not self._drain_requested:
                server.turn(_LOOK_SECONDS)
            server.accept_rest()
            self._answered = self._drain(server)
        except Exception:
            _LOGGER.exception("the loop of %s ended", self._listener)
            self._answered = False
        finally:
            server.cut_off()

    def _drain(self, server: Server) -> bool:
        """Answer what is in flight; return whether it could be.

        Idle clients may ask on as long as others are answered, and are told `Connection: close` then: a connection
        that is closed without a word may cross with its client's next request.
        """
        calm_since = time.monotonic()
        while server.active_channels and (now := time.monotonic()) < self._deadline:
            channels = list(server.active_channels.values())
            if any(channel.busy() for channel in channels):
                calm_since = now
            for channel in channels:
                patience = _QUIET_SECONDS if channel.request is None else _STALLED_SECONDS
                if not channel.busy() and now - max(calm_since, channel.last_activity) > patience:
                    channel.will_close = True
            server.turn(_QUIET_SECONDS / 5)
        return not any(channel.busy() for channel in server.active_channels.values())
