"""The engine for plain HTTP/1.1 in pure Python: waitress, with requests answered by the threads of the dispatcher.

waitress's own loop moves the bytes, `Parser` reads a request, the dispatcher calls `Answer.run` in the thread of the
loop, or in one of its own where that waits for a store, and waitress's own channel and task write the response. When a
request takes long, another thread goes on with the loop. What is changed here: refused bodies, connections that stay,
and the drain.
"""

from __future__ import annotations

import logging
import math
import socket
import sys
import threading
import time
from _thread import get_ident
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer

from plughost._servers.base import MEMORY_LIMIT, Crowding, giving_way
from plughost._servers.connections import BACKLOG, OUT_OF_FILES, open_socket
from plughost._servers.waitress_channel import AHEAD_BYTES, Answer, Channel
from plughost._servers.waitress_messages import TASK, Parts

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.waitress_messages import Task
    from plughost._servers.work import Job, ThreadGroup

_RECEIVERS: Final = 4  # threads of a listener, one of which moves the bytes
_QUIET_SECONDS: Final = 1.0  # for how long an idle connection stays open while draining: a request may be on its way
_STALLED_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.25
_END_SECONDS: Final = 2.0
_WHOLE: Final = (list, tuple)
_WAKING: Final = threading.RLock()  # around waking a loop, and closing what wakes it: its descriptor is free then
_LOGGER: Final = logging.getLogger("plughost._servers")


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    """waitress's server; it is cared for and can be drained."""

    channel_class = Channel
    draining = False  # whether it is to end
    group: ThreadGroup
    active_channels: dict[int, Channel]
    _care = 0.0
    _look = 0.0  # how often connections are looked at
    _turning = 0  # the thread that moves bytes at the moment
    _complete: list[Job]  # what it found

    def add_task(self, channel: Channel) -> None:
        """Have the next request of a connection answered in the dispatcher's turn."""
        request, application = channel.requests[0], self.adj.application
        if application.timed:
            request.complete_at = perf_counter()
        plugin = "" if request.error else application.plugin_of({"REQUEST_URI": request.request_uri})
        dispatcher: Dispatcher = self.task_dispatcher
        answer = Answer(channel, dispatcher.share_of(plugin))
        if request.error or not dispatcher.run_in_pool(answer, request.command):
            self.leave(answer)

    def leave(self, job: Job) -> None:
        """Have a job done: by whoever moves bytes, where that is this thread."""
        if self._turning == get_ident():
            self._complete.append(job)
        else:
            self.task_dispatcher.submit(job)

    def pull_trigger(self) -> None:
        """Let the thread that moves bytes look again at what there is to move; one that begins to will see it."""
        with _WAKING:
            if self._turning:
                super().pull_trigger()

    def turn(self) -> list[Job]:
        """Move what bytes can be moved, once, and return what is to be done; wait until the next look at most."""
        complete: list[Job] = []
        self._complete = complete
        self._turning = get_ident()
        try:
            wasyncore.loop(self._look, use_poll=True, map=self._map, count=1)
            now = time.monotonic()
            if now > self._care:
                self._take_care(now)
                self._care = now + self._look
        except Exception:
            _LOGGER.exception("a turn of the loop failed")
            time.sleep(_LOOK_SECONDS)
        finally:
            self._turning = 0
        return complete

    def _take_care(self, now: float) -> None:
        """Close connections that keep the server waiting; at the limit, also idle ones of whoever holds most."""
        self.accepting = not self.draining
        options, crowded = self.adj.options, self.adj.options.crowded_seconds
        self._look = min(_LOOK_SECONDS, options.idle_timeout / 4, crowded if self.in_connection_overflow else math.inf)
        for channel in list(self.active_channels.values()):
            channel.look(now)
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
            for channel in sorted(idle, key=lambda each: each.last_activity)[: self.adj.connection_limit // 2]:
                if now - channel.last_activity > crowded:
                    channel.handle_close()

    def readable(self) -> bool:
        """Return whether to accept. waitress's own logs a line each time that the limit is reached."""
        if self.accepting:
            self.in_connection_overflow = len(self._map) >= self.adj.connection_limit
            if self.in_connection_overflow:
                self.adj.crowding.note(self.adj.port, out_of_files=False)
        return self.accepting and not self.in_connection_overflow

    def handle_accept(self, most: int = 64) -> None:
        """Accept a connection and those behind it: with one a turn, a crowd would wait for as many turns."""
        for _ in range(most):
            before = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == before or len(self._map) > self.adj.connection_limit:
                return

    def accept(self) -> Any:
        """Accept a connection; without a descriptor for it, pause until connections are looked at next."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.accepting = False
                self._look = self.adj.options.crowded_seconds
                self._care = time.monotonic() + self._look
                self.adj.crowding.note(self.adj.port, out_of_files=True)
            raise

    def accept_rest(self) -> None:
        """Accept every connection that waits in the backlog, then close the listening socket."""
        self.handle_accept(sys.maxsize)
        wasyncore.dispatcher.close(self)


class WaitressEngine:
    """Serves an application over HTTP/1.1; see `Engine`."""

    def __init__(
        self,
        application: Application,
        listener: Listener,
        options: EngineOptions,
        dispatcher: Dispatcher,
    ) -> None:
        self.port = listener.port
        self._application = application
        self._listener = listener
        self._options = options
        self._server: Server | None = None
        self._dispatcher = dispatcher
        self._threads: list[threading.Thread] = []
        self._loop = threading.Lock()  # around a turn of the loop

    def start(self, inherited: socket.socket | None = None) -> None:
        """Open the listener and serve."""
        listening = open_socket(self._listener, inherited)
        self.port = listening.getsockname()[1]
        self._server = server = Server(
            self._call,
            map={},
            _sock=listening,
            dispatcher=self._dispatcher,
            adj=self._adjustments(),
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
        )
        server.group = self._dispatcher.add_group(_RECEIVERS)
        self._threads = [
            threading.Thread(target=self._run, args=(server,), name=f"waitress-{self.port}", daemon=True)
            for _ in range(_RECEIVERS)
        ]
        for thread in self._threads:
            thread.start()

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on."""
        self._options = replace(self._options, body_limit=limit)
        if self._server is not None:
            self._server.adj.options = self._options

    def drain(self, grace: float) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads."""
        server, self._server = self._server, None
        if server is None:
            return True
        deadline = time.monotonic() + grace
        server.draining = True
        self._dispatcher.remove_group(server.group)
        server.pull_trigger()
        with self._loop:
            server.accept_rest()
            answered = self._drain(server, deadline)
            for channel in list(server.active_channels.values()):
                channel.handle_close()
        end = time.monotonic() + (_END_SECONDS if answered else 0.1)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with _WAKING:
            wasyncore.close_all(server._map, ignore_all=True)  # noqa: SLF001 - as waitress's own `close` of several
        return answered

    def _call(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        task: Task = environ.pop(TASK)
        if task.parts is not None:
            return task.parts
        application = self._application.refuse if task.channel.overloaded else self._application
        body = application(environ, start_response)
        if type(body) in _WHOLE:
            return body
        task.parts = Parts(body, task)
        return task.parts

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
            inbuf_overflow=MEMORY_LIMIT,
            outbuf_high_watermark=AHEAD_BYTES,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=False,
            server_name=self._listener.address,
            ident="plughost",
        )
        adjustments.application = self._application
        adjustments.options = options
        adjustments.crowding = Crowding()
        return adjustments

    def _run(self, server: Server) -> None:
        """Move bytes, and answer what is complete then; the life of each thread, of which all but one are parked."""
        dispatcher, group = self._dispatcher, server.group
        while not server.draining:
            if dispatcher.park_if_spare(group):
                continue
            with self._loop:
                complete = [] if server.draining else server.turn()
            if complete:
                first, *others = complete
                for each in others:
                    dispatcher.enqueue(each, group)
                dispatcher.run_or_queue(first, group)

    def _drain(self, server: Server, deadline: float) -> bool:
        """Answer what is in flight; return whether it could be.

        Idle clients may ask on as long as others are answered, and are told `Connection: close` then: a connection
        that is closed without a word may cross with its client's next request.
        """
        calm_since = time.monotonic()
        while server.active_channels and (now := time.monotonic()) < deadline:
            channels = list(server.active_channels.values())
            if any(channel.busy() for channel in channels):
                calm_since = now
            for channel in channels:
                patience = _QUIET_SECONDS if channel.request is None else _STALLED_SECONDS
                if now - max(calm_since, channel.last_activity) > patience:
                    channel.will_close = True
            for job in server.turn():
                self._dispatcher.submit(job)
        return not any(channel.busy() for channel in server.active_channels.values())
