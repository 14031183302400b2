"""The engine for plain HTTP/1.1 in pure Python: waitress, with requests run by the dispatcher's threads.

waitress's own loop does the I/O, `Parser` parses a request, and waitress's own channel and task write the response. The
dispatcher calls `ChannelJob.run` in the thread of the loop, or in the blocking pool. When a request takes long, another
thread takes over the loop. Changed here: refused bodies, connections that stay open, and the drain.
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

from plughost._servers.base import MEMORY_LIMIT, OverloadLog, excess_bodies
from plughost._servers.connections import BACKLOG, OUT_OF_FILES, peer_address
from plughost._servers.threads import ThreadGroup
from plughost._servers.waitress_channel import SEND_AHEAD_BYTES, Channel, ChannelJob
from plughost._servers.waitress_messages import TASK, ResumableBody

if TYPE_CHECKING:
    from wsgiref.types import StartResponse

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.waitress_messages import Task
    from plughost._servers.work import Job

_RECEIVERS: Final = 4  # threads of a listener, one of which runs the loop
_QUIET_SECONDS: Final = 1.0  # for which an idle connection stays open in a drain: a request may be on its way
_STALLED_SECONDS: Final = 2.0
_MAINTENANCE_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 2.0
_LOOKS_OF_OTHERS: Final = 2  # during a pause without descriptors
_LIST_TYPES: Final = (list, tuple)
_TRIGGER_LOCK: Final = threading.RLock()  # so that no closed trigger is written to: its descriptor may be reused
_LOGGER: Final = logging.getLogger("plughost._servers")


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    """waitress's server, with maintenance of connections and a drain."""

    channel_class = Channel
    is_draining = False
    group: ThreadGroup
    active_channels: dict[int, Channel]
    _next_maintenance = 0.0
    _accept_again_at = 0.0
    _maintenance_interval = 0.0  # seconds
    _loop_thread = 0  # id of the thread that runs the loop; 0 if none does
    _complete_jobs: list[Job]  # found in this iteration

    def add_task(self, channel: Channel) -> None:
        """Have the next request of a connection run by the dispatcher."""
        request, application = channel.requests[0], self.adj.application
        if application.timed:
            request.completed_at = perf_counter()
        plugin = "" if request.error else application.plugin_of({"REQUEST_URI": request.request_uri})
        dispatcher: Dispatcher = self.task_dispatcher
        job = ChannelJob(channel, dispatcher.share_of(plugin))
        if request.error or not dispatcher.pool.run(job, request.command):
            self.submit(job)

    def submit(self, job: Job) -> None:
        """Have a job run: by the thread of the loop if that is this one, else by the dispatcher."""
        if self._loop_thread == get_ident():
            self._complete_jobs.append(job)
        else:
            self.task_dispatcher.submit(job)

    def pull_trigger(self) -> None:
        """Wake the loop if a thread runs it. A thread that enters it later sees the change anyway."""
        with _TRIGGER_LOCK:
            if self._loop_thread:
                super().pull_trigger()

    def run_loop_once(self) -> list[Job]:
        """Run one iteration of the loop, and return the jobs ready. Wait until the next maintenance at most."""
        complete: list[Job] = []
        self._complete_jobs = complete
        self._loop_thread = get_ident()
        now = time.monotonic()  # before reading: after a pause of the process, what arrived meanwhile counts
        try:
            wasyncore.loop(self._maintenance_interval, use_poll=True, map=self._map, count=1)
            if now > self._next_maintenance:
                self._maintain(now)
                self._next_maintenance = now + self._maintenance_interval
        except Exception:
            _LOGGER.exception("a turn of the loop failed")
            time.sleep(_MAINTENANCE_SECONDS)
        finally:
            self._loop_thread = 0
        return complete

    def _maintain(self, now: float) -> None:
        """Close connections of slow clients. At the limit, also idle ones of the client that holds most.

        Without a descriptor for further ones, it does the same.
        """
        self.accepting = not self.is_draining and now >= self._accept_again_at
        options, interval = self.adj.options, self.adj.options.eviction_interval
        self._maintenance_interval = min(
            _MAINTENANCE_SECONDS, options.idle_timeout / 4, interval if self.in_connection_overflow else math.inf
        )
        for channel in list(self.active_channels.values()):
            channel.resume_if_ready(now)
            if channel.is_overdue(now):
                channel.handle_close()  # `will_close` would wait until the client reads
            elif channel.is_receiving:
                started_at, last_received = channel.request.started_at, channel.last_activity
                if options.is_overdue(now, started_at=started_at, received_at=last_received, size=channel.size):
                    channel.refuse(408)
        receiving = [each for each in self.active_channels.values() if each.is_receiving]
        for channel in excess_bodies(sorted(receiving, key=lambda each: each.request.started_at), options.body_memory):
            channel.refuse(503)
        if self.in_connection_overflow and self.active_channels:
            busiest, _ = Counter(each.addr[0] for each in self.active_channels.values()).most_common(1)[0]
            idle = [each for each in self.active_channels.values() if each.addr[0] == busiest and not each.is_busy()]
            for channel in sorted(idle, key=lambda each: each.last_activity)[: self.adj.connection_limit // 2]:
                if now - channel.last_activity > interval:
                    channel.handle_close()

    def readable(self) -> bool:
        """Return whether to accept. waitress's own logs a line each time that the limit is reached."""
        if self.accepting:
            self.in_connection_overflow = len(self._map) >= self.adj.connection_limit
            if self.in_connection_overflow:
                self.adj.overload_log.record(self.adj.port, out_of_files=False)
        return self.accepting and not self.in_connection_overflow

    def handle_accept(self, busiest: int = 64) -> None:
        """Accept a connection and those behind it: one for each iteration would be too slow for a crowd."""
        for _ in range(busiest):
            before = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == before:
                return
            if len(self._map) >= self.adj.connection_limit:
                self.in_connection_overflow = True  # for `_maintain`, which may come before `readable`
                return

    def fix_addr(self, addr: tuple[Any, ...]) -> tuple[Any, ...]:
        return peer_address(addr[0]), *addr[1:]

    def accept(self) -> Any:
        """Accept a connection. Without a descriptor for it, close idle ones as at the limit, and pause meanwhile.

        The pause lets other listeners look at their connections, which takes a descriptor, too.
        """
        try:
            return super().accept()
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                self.accepting, self.in_connection_overflow = False, True
                self._maintenance_interval = self.adj.options.eviction_interval
                self._next_maintenance = time.monotonic() + self._maintenance_interval
                self._accept_again_at = self._next_maintenance + _LOOKS_OF_OTHERS * self._maintenance_interval
                self.adj.overload_log.record(self.adj.port, out_of_files=True)
            raise


class WaitressEngine:
    """Serves an application over HTTP/1.1. See `Engine`."""

    def __init__(
        self,
        application: Application,
        listener: Listener,
        listening: socket.socket,
        options: EngineOptions,
        dispatcher: Dispatcher,
    ) -> None:
        """Serve on a listening socket."""
        self.port: int = listening.getsockname()[1]
        self._application = application
        self._dispatcher = dispatcher
        self._loop_lock = threading.Lock()  # around an iteration
        self._server = Server(
            self._call,
            map={},
            _sock=listening,
            dispatcher=dispatcher,
            adj=self._adjustments(listener.address, options),
            bind_socket=False,
        )
        self._server.group = ThreadGroup(_RECEIVERS - 1)
        self._threads = [
            threading.Thread(target=self._run, name=f"waitress-{self.port}", daemon=True) for _ in range(_RECEIVERS)
        ]
        for thread in self._threads:
            thread.start()

    def set_body_limit(self, limit: int) -> None:
        self._server.adj.options = replace(self._server.adj.options, body_limit=limit)

    def drain(self, grace: float) -> bool:
        server = self._server
        if server.is_draining:
            return True
        deadline = time.monotonic() + grace
        server.is_draining = True
        self._dispatcher.threads.close_group(server.group)
        server.pull_trigger()
        with self._loop_lock:
            server.handle_accept(sys.maxsize)
            wasyncore.dispatcher.close(server)  # its listening socket alone
            answered = self._drain(deadline)
            for channel in list(server.active_channels.values()):
                channel.handle_close()
        end = time.monotonic() + (_STOP_SECONDS if answered else 0.1)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with _TRIGGER_LOCK:
            wasyncore.close_all(server._map, ignore_all=True)  # noqa: SLF001 - as waitress's own `close` of several
        return answered

    def _call(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        task: Task = environ.pop(TASK)
        if task.resumable_body is not None:
            return task.resumable_body
        application = self._application.refuse if task.channel.is_overloaded else self._application
        body = application(environ, start_response)
        if type(body) in _LIST_TYPES:
            return body
        task.resumable_body = ResumableBody(body, task)
        return task.resumable_body

    def _adjustments(self, address: str, options: EngineOptions) -> Any:
        adjustments = Adjustments(
            port=self.port,
            backlog=BACKLOG,
            connection_limit=options.connection_limit,
            channel_timeout=options.idle_timeout,
            channel_request_lookahead=1,
            max_request_body_size=sys.maxsize,
            max_request_header_size=64 * 1024,
            inbuf_overflow=MEMORY_LIMIT,
            outbuf_high_watermark=SEND_AHEAD_BYTES,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=False,
            server_name=address,
            ident="plughost",
        )
        adjustments.application = self._application
        adjustments.options = options
        adjustments.overload_log = OverloadLog()
        return adjustments

    def _run(self) -> None:
        """Run the loop and the jobs that it finds. All threads but one are parked meanwhile."""
        server, dispatcher, group = self._server, self._dispatcher, self._server.group
        while not server.is_draining:
            if dispatcher.park_if_spare(group):
                continue
            with self._loop_lock:
                complete = [] if server.is_draining else server.run_loop_once()
            if complete:
                first, *others = complete
                for each in others:
                    dispatcher.enqueue(each)
                dispatcher.run_or_queue(first, group)

    def _drain(self, deadline: float) -> bool:
        """Answer what is in flight. Return whether that was possible.

        While others are answered, idle clients may send requests, and get `Connection: close` then: closing a
        connection without notice may race with its client's next request.
        """
        server, idle_since = self._server, time.monotonic()
        while server.active_channels and (now := time.monotonic()) < deadline:
            channels = list(server.active_channels.values())
            if any(channel.is_busy() for channel in channels):
                idle_since = now
            for channel in channels:
                patience = _QUIET_SECONDS if channel.request is None else _STALLED_SECONDS
                if now - max(idle_since, channel.last_activity) > patience:
                    channel.will_close = True
            for job in server.run_loop_once():
                self._dispatcher.submit(job)
        return not any(channel.is_busy() for channel in server.active_channels.values())
