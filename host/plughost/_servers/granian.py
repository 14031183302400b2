"""The engine for TLS and HTTP/2, on granian.

granian receives a request and calls `Requests.schedule`, which has it answered once its body is there. Here the
engine is started, its connections are cared for, and it is drained.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from plughost._servers import connections
from plughost._servers.base import Address, Crowding, ListenError, giving_way
from plughost._servers.granian_request import Body, Requests
from plughost._servers.granian_worker import GranianWorker
from plughost._servers.native_threads import wait_for_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions, TLSFiles
    from plughost._servers.dispatcher import Dispatcher

_RECEIVERS: Final = 12  # threads of granian, of which all but one may be held
_AHEAD_BYTES: Final = 128 * 1024  # of a response that the system takes before its client does
_QUIET_SECONDS: Final = 1.0  # for how long a connection has to be idle while draining before it is closed
_BUSY_SECONDS: Final = 1.0  # for how long clients that ask on while draining are waited for
_EQUAL_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.05
_CHECK_SECONDS: Final = 0.25  # how often it is looked at what waits for its client
_END_SECONDS: Final = 2.0
_LOGGER: Final = logging.getLogger("plughost._servers")


class GranianEngine:
    """Serves an application over HTTP/1.1 and HTTP/2, with or without TLS; see `Engine`.

    For another certificate, another engine replaces it on the same socket. The first pauses, so that its connections
    are known; the second starts; then the first is drained, or resumes.
    """

    def __init__(
        self,
        application: Application,
        listener: Listener,
        options: EngineOptions,
        tls: TLSFiles | None,
        dispatcher: Dispatcher,
    ) -> None:
        self.port = listener.port
        self._application = application
        self._listener = listener
        self._options = options
        self._tls = tls
        self._dispatcher = dispatcher
        self._serving: tuple[socket.socket, GranianWorker, Requests] | None = None

    def pause(self) -> frozenset[Address]:
        """Accept no connection until `resume`, and return the clients that are connected; further ones wait."""
        if self._serving is None:
            return frozenset()
        self._serving[1].pause()
        self._paused = True
        return connections.clients(self.port)

    def resume(self) -> None:
        """Accept connections again."""
        if self._serving is not None:
            self._paused = False
            self._serving[1].resume()

    def start(self, inherited: socket.socket | None = None, *, others: frozenset[Address] = frozenset()) -> None:
        """Open the listener and serve; leave `others`, the clients of the engine before, alone."""
        listening = connections.open_socket(self._listener, inherited)
        if sys.platform == "linux":  # its connections inherit that
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _AHEAD_BYTES)
        self.port = listening.getsockname()[1]
        dispatcher = self._dispatcher
        address = self._listener.address, self.port
        requests = Requests(self._application, dispatcher, dispatcher.add_group(_RECEIVERS), self._options, address)
        try:
            worker = GranianWorker(listening, self._options, self._tls, _RECEIVERS)
            worker.start(requests.schedule, dispatcher.processor.avoid)
        except BaseException as error:  # a panic of granian's is no Exception
            listening.close()
            dispatcher.remove_group(requests.group)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise ListenError(
                f"Cannot serve {self._listener}: {error}; check the certificate and its key (PEM, PKCS#8)."
            ) from error
        self._serving = listening, worker, requests
        self._others = others
        self._only: frozenset[Address] | None = None
        self._awaited: dict[Address, float] = {}  # clients whose answer was awaited of late, and when
        self._paused = self._crowded = False
        self._crowding = Crowding()
        self._draining = threading.Event()
        name = f"care-{self.port}"
        self._caretaker = threading.Thread(target=self._care, args=(worker, requests), name=name, daemon=True)
        self._caretaker.start()

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on."""
        self._options = replace(self._options, body_limit=limit)
        if self._serving is not None:
            self._serving[2].options = self._options

    def _care(self, worker: GranianWorker, requests: Requests) -> None:
        """Give up on clients that keep the server waiting, and on connections on which nothing happens."""
        requests.dispatcher.processor.bind()
        timeout, crowded = self._options.idle_timeout, self._options.crowded_seconds
        looked = made_room = time.monotonic()
        while not self._draining.wait(min(_CHECK_SECONDS, timeout / 4, crowded)):
            now = time.monotonic()
            try:
                self._note_awaited(requests)
                waiting = tuple(requests.waiting)
                for each in waiting:
                    each.check(now)
                bodies = sorted((each for each in waiting if type(each) is Body), key=lambda each: each.begun)
                for body in giving_way(bodies, self._options.body_memory):
                    body.refuse()
                if requests.left:
                    left = {requests.left.pop() for _ in range(len(requests.left))}
                    self._cut(left.__contains__)
                if now > looked + max(0.5, timeout / 4):
                    looked = now
                    self._cut_idle(requests, timeout)
                    self._give_up_stuck(requests, timeout)
                files = connections.descriptors()
                if now > made_room + crowded or files == sys.maxsize:
                    made_room = now
                    self._make_room(worker, requests, files, crowded)
            except Exception:
                _LOGGER.exception("a look at the clients of port %d failed", self.port)

    def _connections(self) -> Iterator[tuple[Address, socket.socket]]:
        """Yield its connections, and no other engine's, as far as that can be told."""
        for client, found in connections.connections(self.port):
            if client not in self._others if self._only is None else client in self._only:
                yield client, found

    def _cut(self, chosen: Callable[[Address], bool] = lambda _: True, idle: float = -1.0) -> None:
        """End connections of some clients at once, those on which nothing happened for so many seconds."""
        for client, found in self._connections():
            with contextlib.suppress(OSError):
                if chosen(client) and self._idle_seconds(found) > idle:
                    found.shutdown(socket.SHUT_RDWR)

    def _idle_seconds(self, connection: socket.socket) -> float:
        """Return for how long nothing happened; 0 in a drain where the client has not taken its answer yet."""
        waits = self._draining.is_set() and connections.is_full(connection)
        return 0.0 if waits else connections.idle_seconds(connection)

    def _cut_idle(self, requests: Requests, seconds: float, address: str = "") -> None:
        """Close connections, of one address or all, on which nothing happened for so long and no answer is awaited."""
        self._note_awaited(requests)
        self._others &= connections.clients(self.port)  # the others' addresses may become its clients'
        self._cut(lambda client: address in {"", client[0]} and client not in self._awaited, seconds)

    def _note_awaited(self, requests: Requests) -> None:
        """Note which clients await an answer, for a second more than they do: granian writes it after it was given."""
        now = time.monotonic()
        awaited = {client: when for client, when in self._awaited.items() if now - when < _QUIET_SECONDS}
        self._awaited = awaited | dict.fromkeys([call.peer for call in tuple(requests.calls)], now)

    def _give_up_stuck(self, requests: Requests, seconds: float) -> None:
        """Give up on clients that take nothing; of those that take little, only their connections tell."""
        stuck = [call for call in tuple(requests.calls) if call.is_stuck]
        quiet = set()
        for client, found in self._connections() if stuck else ():
            with contextlib.suppress(OSError):
                if connections.idle_seconds(found) > seconds:
                    quiet.add(client)
        for call in stuck:
            if call.peer in quiet:
                call.give_up()

    def _make_room(self, worker: GranianWorker, requests: Requests, files: int, least: float) -> None:
        """At the limit of connections, close those of whoever holds most that were idle for the longest, and the least.

        Over TLS granian accepts more, until no descriptor is left. Then none is accepted before there is room.
        """
        limit = self._options.connection_limit
        number = 0
        idle: dict[str, list[float]] = {}
        if files == sys.maxsize and not self._crowded:
            self._crowded = True
            worker.pause()
            self._crowding.note(self.port, out_of_files=True)
        if files >= limit or self._crowded:
            for (address, _), found in self._connections():
                number += 1
                with contextlib.suppress(OSError):
                    idle.setdefault(address, []).append(connections.idle_seconds(found))
        if self._crowded and number < limit and not self._paused:
            with contextlib.suppress(OSError):  # there is still no descriptor
                worker.resume()
                self._crowded = False
        if number >= limit:
            self._crowding.note(self.port, out_of_files=False)
            if number > limit and not self._crowded:
                self._crowded = True
                worker.pause()
            most = max(idle, key=lambda address: len(idle[address]))
            longest = sorted(idle[most], reverse=True)[: number - limit // 2][-1]
            self._cut_idle(requests, max(least, longest - _EQUAL_SECONDS), most)

    def drain(self, grace: float, *, only: frozenset[Address] | None = None) -> bool:
        """Accept no more, answer what is in flight, close its connections (or `only` these), and end the threads."""
        if self._serving is None:
            return True
        (listening, worker, requests), self._serving = self._serving, None
        self._only = only
        deadline = time.monotonic() + grace
        self._draining.set()
        self._caretaker.join()
        while connections.waiting(listening) and self._accepts() and time.monotonic() < deadline:
            time.sleep(0.001)
        worker.refuse()
        # Nobody waits for an engine that was replaced, so its clients get more time to say what is on its way.
        patience = 1 if only is None else 4
        self._quieten(requests, deadline, patience)
        worker.stop()
        while not worker.ended.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
            self._cut_idle(requests, patience * _QUIET_SECONDS)
        answered = worker.ended.is_set()  # where it is, nobody awaits what goes on
        if not answered:
            answered = not (requests.calls or any(connections.is_full(found) for _, found in self._connections()))
            self._cut()
            worker.ended.wait(_END_SECONDS)
        requests.dispatcher.remove_group(requests.group)
        wait_for_threads(worker.name, _END_SECONDS)  # they need the interpreter: without it, the process would abort
        return answered

    def _accepts(self) -> bool:
        """Return whether granian accepts connections: not in a pause, nor with as many as it may have."""
        is_paused = self._paused or self._crowded
        return not is_paused and len(connections.clients(self.port)) < self._options.connection_limit

    def _quieten(self, requests: Requests, deadline: float, patience: float) -> None:
        """Wait until nothing happens any more, or at least what was in flight at first has been answered.

        granian's stop closes HTTP/1.1 connections between two requests at once, even when the next one is on its way,
        and tells HTTP/2 clients to go away, which not all of them (h2, httpx) survive with a request in flight. So it
        is stopped late: HTTP/1.1 clients are told `Connection: close` first, and slow requests are waited for.
        """
        requests.draining = True
        begun = time.monotonic()
        first = set(requests.calls)
        half = begun + (deadline - begun) / 2
        while (now := time.monotonic()) < half:
            self._note_awaited(requests)
            with contextlib.suppress(OSError):  # a connection was closed meanwhile
                idle = (self._idle_seconds(found) for _, found in self._connections())
                if not requests.calls and all(each > patience * _QUIET_SECONDS for each in idle):
                    return
            if now > begun + patience * _BUSY_SECONDS and not first & requests.calls:
                return
            time.sleep(_LOOK_SECONDS)
