"""The engine for TLS and HTTP/2, on granian.

granian receives a request and calls `ListenerRequests.schedule`, which has it answered once its body is complete. This
module starts the engine, maintains its connections, and drains it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from plughost._servers import connections
from plughost._servers.base import Address, ListenError, OverloadLog, excess_bodies
from plughost._servers.granian_request import ListenerRequests, RequestBody
from plughost._servers.granian_worker import GranianWorker
from plughost._servers.processor import wait_for_threads
from plughost._servers.threads import ThreadGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions
    from plughost._servers.dispatcher import Dispatcher

_RECEIVERS: Final = 12  # threads of granian, of which all but one may be held
_SEND_AHEAD_BYTES: Final = 128 * 1024  # of a response that the system buffers ahead of its client
_QUIET_SECONDS: Final = 1.0  # for which a connection must be idle before a drain closes it
_BUSY_SECONDS: Final = 1.0  # for which a drain waits for clients that keep sending requests
_TOLERANCE_SECONDS: Final = 0.01
_POLL_SECONDS: Final = 0.05
_ANSWER_SECONDS: Final = 1.0  # in which a body that is overdue is answered before its connection counts as idle
_CHECK_SECONDS: Final = 0.25  # between two checks of requests that wait for their clients
_STOP_SECONDS: Final = 2.0
_MAX_UNTAKEN_BYTES: Final = 256 * 1024 * 1024  # of responses that wait in granian for their clients
_LOGGER: Final = logging.getLogger("plughost._servers")


class GranianEngine:
    """Serves an application over HTTP/1.1 and HTTP/2, with or without TLS. See `Engine`.

    For a new certificate, a second engine replaces it on the same socket. The first one pauses, so that its clients are
    known. The second starts. Then the first is drained, or resumes.
    """

    def __init__(
        self,
        application: Application,
        listener: Listener,
        listening: socket.socket,
        options: EngineOptions,
        dispatcher: Dispatcher,
    ) -> None:
        """Serve on a listening socket."""
        if sys.platform == "linux":  # its connections inherit that
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _SEND_AHEAD_BYTES)
        self.port: int = listening.getsockname()[1]
        self._listening = listening
        self._foreign_clients = connections.clients(self.port)  # of the engine that it replaces, to be left alone
        self._requests = ListenerRequests(
            application, dispatcher, ThreadGroup(_RECEIVERS - 1), options, (listener.address, self.port)
        )
        try:
            self._worker = GranianWorker(listening, options, _RECEIVERS)
            self._worker.start(self._requests.schedule, dispatcher.processor.avoid)
        except BaseException as error:  # a panic of granian's is no Exception
            listening.close()
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            if isinstance(error, OSError) and error.errno in connections.OUT_OF_FILES:
                reason, advice = error.strerror, connections.MORE_FILES
            else:
                reason, advice = str(error), "check the certificate and its key (PEM, PKCS#8)"
            raise ListenError(f"Cannot serve {listener}: {reason}; {advice}.") from error
        self._own_clients: frozenset[Address] | None = None  # known while it pauses
        self._pausing = threading.Lock()  # the maintenance pauses and resumes, too
        self._awaiting_clients: dict[Address, float] = {}  # clients that await a response or did recently, and when
        self._overload_log = OverloadLog()
        self._taken_bytes = 0  # at the last look, by the clients that were connected then
        self._max_clients = 64  # of which it is known what they were sent, before the next look forgets those that left
        self._draining = threading.Event()
        self._maintenance = threading.Thread(target=self._maintain, name=f"care-{self.port}", daemon=True)
        self._maintenance.start()

    def pause(self) -> None:
        """Accept no connection until `resume`. Further clients wait."""
        with self._pausing:
            self._worker.pause()
            self._own_clients = connections.clients(self.port) - self._foreign_clients

    def resume(self) -> None:
        with self._pausing:
            self._own_clients = None
            with contextlib.suppress(OSError):  # there is no descriptor: `_evict_idle` tries again
                self._worker.resume()

    def set_body_limit(self, limit: int) -> None:
        self._requests.options = replace(self._requests.options, body_limit=limit)

    def _maintain(self) -> None:
        """Give up on slow clients, and close idle connections."""
        requests = self._requests
        requests.dispatcher.processor.bind()
        timeout, interval = requests.options.idle_timeout, requests.options.eviction_interval
        checked_at = evicted_at = time.monotonic()
        while not self._draining.wait(min(_CHECK_SECONDS, timeout / 4, interval)):
            now = time.monotonic()
            try:
                self._record_awaiting()
                waiting = tuple(requests.waiting)
                for each in waiting:
                    each.check(now)
                bodies = sorted(
                    (each for each in waiting if type(each) is RequestBody), key=lambda each: each.started_at
                )
                for body in excess_bodies(bodies, requests.options.body_memory):
                    body.refuse()
                self._limit_untaken()
                if requests.to_disconnect:
                    disconnected = {requests.to_disconnect.pop() for _ in range(len(requests.to_disconnect))}
                    self._disconnect(disconnected.__contains__)
                if now > checked_at + max(0.5, timeout / 4):
                    checked_at = now
                    self._disconnect_idle(timeout + _ANSWER_SECONDS)
                    self._abandon_stuck(timeout)
                files = connections.count_descriptors()
                if now > evicted_at + interval or files == sys.maxsize:
                    evicted_at = now
                    with self._pausing:
                        self._evict_idle(files, interval)
            except Exception:
                _LOGGER.exception("a look at the clients of port %d failed", self.port)

    def _connections(self) -> Iterator[tuple[Address, socket.socket]]:
        """Yield its connections, and no other engine's, as far as they can be told apart."""
        for client, found in connections.connections(self.port):
            if client not in self._foreign_clients if self._own_clients is None else client in self._own_clients:
                yield client, found

    def _disconnect(self, matches: Callable[[Address], bool] = lambda _: True, idle: float = -1.0) -> None:
        """Shut down the connections of matching clients that were idle for more than this many seconds."""
        for client, found in self._connections():
            with contextlib.suppress(OSError):
                if matches(client) and self._idle_seconds(found) > idle:
                    found.shutdown(socket.SHUT_RDWR)

    def _idle_seconds(self, connection: socket.socket) -> float:
        """Return for how long a connection was idle. 0 in a drain if the client hasn't read its response yet."""
        waits = self._draining.is_set() and connections.is_full(connection)
        return 0.0 if waits else connections.idle_seconds(connection)

    def _disconnect_idle(self, seconds: float, address: str = "") -> None:
        """Close connections, of one address or all, that were idle for so long while no response is awaited."""
        self._record_awaiting()
        self._foreign_clients &= connections.clients(self.port)  # closed ones: their addresses may become its clients'
        self._disconnect(lambda client: address in {"", client[0]} and client not in self._awaiting_clients, seconds)

    def _record_awaiting(self) -> None:
        """Record which clients await a response, for a second longer than they do: granian writes it with a delay."""
        now = time.monotonic()
        awaited = {client: when for client, when in self._awaiting_clients.items() if now - when < _QUIET_SECONDS}
        self._awaiting_clients = awaited | dict.fromkeys([job.peer for job in tuple(self._requests.in_flight)], now)

    def _abandon_stuck(self, seconds: float) -> None:
        """Give up on clients that read nothing. For those that read little, only their connections show it."""
        stuck = [job for job in tuple(self._requests.in_flight) if job.is_stuck]
        idle = {client: connections.idle_seconds(found) for client, found in self._connections()} if stuck else {}
        for job in stuck:
            if idle.get(job.peer, 0.0) > seconds:
                job.abandon()

    def _limit_untaken(self) -> None:
        """Close the connections whose clients leave most of their responses, if all leave more than the limit.

        Otherwise granian keeps these responses for as long as their clients send anything, such as pings.
        """
        sent = dict(self._requests.sent)
        if len(sent) <= self._max_clients and sum(sent.values()) - self._taken_bytes <= _MAX_UNTAKEN_BYTES:
            return
        taken = {
            (address, str(port)): connections.bytes_acknowledged(found, sys.maxsize)
            for (address, port), found in self._connections()
        }
        for client in sent.keys() - taken.keys():
            self._requests.sent.pop(client, None)
        untaken = {client: sent[client] - taken[client] for client in sent.keys() & taken.keys()}
        excess = sum(size for size in untaken.values() if size > 0) - _MAX_UNTAKEN_BYTES
        closing = set()
        for client in sorted(untaken, key=untaken.__getitem__, reverse=True):
            if excess > 0:
                excess -= untaken[client]
                closing.add((client[0], int(client[1])))
        if closing:
            self._disconnect(closing.__contains__)
            _LOGGER.warning("Closed %d connections that left most of their responses.", len(closing))
        self._taken_bytes = sum(min(sent[client], taken[client]) for client in untaken)
        self._max_clients = 64 + 2 * len(untaken)

    def _evict_idle(self, files: int, min_idle: float) -> None:
        """At the limit, or without a descriptor, close the connections idle for longest, of the client that holds most.

        Over TLS granian accepts more, until no descriptor is left. Then it pauses until there is room.
        """
        worker, limit = self._worker, self._requests.options.connection_limit
        is_out_of_files = files == sys.maxsize
        idle: defaultdict[str, list[float]] = defaultdict(list)
        if is_out_of_files and not worker.is_paused:
            worker.pause()
            self._overload_log.record(self.port, out_of_files=True)
        if files >= limit or worker.is_paused:
            for (address, _), found in self._connections():
                idle[address].append(connections.idle_seconds(found))
        number = sum(map(len, idle.values()))
        if number >= limit:
            self._overload_log.record(self.port, out_of_files=False)
            if number > limit:
                worker.pause()
        if number >= limit or (is_out_of_files and number):
            busiest = max(idle, key=lambda address: len(idle[address]))
            kept = min(number, limit) // 2
            longest = sorted(idle[busiest], reverse=True)[: number - kept][-1]
            self._disconnect_idle(max(min_idle, longest - _TOLERANCE_SECONDS), busiest)
        elif worker.is_paused and self._own_clients is None:
            with contextlib.suppress(OSError):  # there is still no descriptor
                worker.resume()

    def drain(self, grace: float) -> bool:
        if self._draining.is_set():
            return True
        worker, requests = self._worker, self._requests
        deadline = time.monotonic() + grace
        self._draining.set()
        self._maintenance.join()
        limit = requests.options.connection_limit
        while connections.backlog_size(self._listening) and not worker.is_paused and time.monotonic() < deadline:
            is_out_of_files = connections.count_descriptors() == sys.maxsize
            if is_out_of_files or len(connections.clients(self.port)) >= limit:
                break  # nobody accepts these
            time.sleep(0.001)
        worker.close_port()
        # Nobody waits for an engine that was replaced, so its clients get more time to send the requests on their way.
        patience = 1 if self._own_clients is None else 4
        self._wait_until_quiet(deadline, patience)
        worker.stop()
        while not worker.ended.wait(_POLL_SECONDS) and time.monotonic() < deadline:
            self._disconnect_idle(patience * _QUIET_SECONDS)
        answered = worker.ended.is_set()  # if so, no client awaits a response
        if not answered:
            answered = not (requests.in_flight or any(connections.is_full(found) for _, found in self._connections()))
            self._disconnect()
            worker.ended.wait(_STOP_SECONDS)
        requests.dispatcher.threads.close_group(requests.group)
        wait_for_threads(worker.name, _STOP_SECONDS)  # they need the interpreter: without it, the process would abort
        return answered

    def _wait_until_quiet(self, deadline: float, patience: float) -> None:
        """Wait until all connections are idle, or at least the first requests in flight were answered a while ago.

        granian's stop closes HTTP/1.1 connections between two requests at once, even when the next one is already being
        sent, and sends HTTP/2 clients GOAWAY, perhaps before the end of a response. Some clients (h2, httpx) don't
        survive that with a request in flight. So it is stopped late: HTTP/1.1 clients are told `Connection: close`
        first, and slow requests are waited for.
        """
        requests = self._requests
        requests.is_draining = True
        begun = busy_since = time.monotonic()
        first = set(requests.in_flight)
        half = begun + (deadline - begun) / 2
        while (now := time.monotonic()) < half:
            self._record_awaiting()
            idle = (self._idle_seconds(found) for _, found in self._connections())
            if not requests.in_flight and all(each > patience * _QUIET_SECONDS for each in idle):
                return
            if first & requests.in_flight:
                busy_since = now
            if now > busy_since + patience * _BUSY_SECONDS:
                return
            time.sleep(_POLL_SECONDS)
