"""The engine for TLS and HTTP/2, on granian."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from plughost._servers import connections
from plughost._servers.base import CROWDED_SECONDS, Address, ListenError
from plughost._servers.dispatcher import Dispatcher
from plughost._servers.granian_request import Requests
from plughost._servers.granian_worker import GranianWorker
from plughost._servers.listening import open_socket
from plughost._servers.native_threads import named, wait_for_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions, TLSFiles

_RECEIVERS: Final = 4  # threads of granian, of which all but one may be held; more of them take turns and cost cache
_QUIET_SECONDS: Final = 0.25  # for how long a connection has to be idle while draining before it is closed
_BUSY_SECONDS: Final = 1.0  # for how long clients that ask on while draining are waited for
_EQUAL_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.05
_CHECK_SECONDS: Final = 0.25  # how often it is looked at what waits for its client
_LOGGER: Final = logging.getLogger("plughost._servers")


class GranianEngine:
    """Serves a WSGI application over HTTP/1.1 and HTTP/2, with or without TLS.

    Args:
        application: What is called for each request.
        listener: Where it is reached.
        options: Threads, limits and time-outs.
        tls: The certificate; needed where the listener's scheme is https.
        dispatcher: Whose turn requests are answered in; its own by default.
    """

    def __init__(
        self,
        application: Application,
        listener: Listener,
        options: EngineOptions,
        tls: TLSFiles | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Prepare; nothing is opened before `start`."""
        self._application = application
        self._listener = listener
        self._options = options
        self._tls = tls
        self._dispatcher = dispatcher
        self._port = listener.port
        self._body_limit = options.body_limit
        self._service: _Service | None = None

    @property
    def port(self) -> int:
        """The TCP port it listens on; valid once started."""
        return self._port

    def pause(self) -> frozenset[Address]:
        """Accept no connection until `resume`, and return the clients that are connected; further ones wait."""
        return frozenset() if self._service is None else self._service.pause()

    def resume(self) -> None:
        """Accept connections again."""
        if self._service is not None:
            self._service.resume()

    def start(self, inherited: socket.socket | None = None, *, others: frozenset[Address] = frozenset()) -> None:
        """Open the listener and serve; connections are accepted on return.

        Args:
            inherited: A listening socket to use instead of opening one.
            others: Clients of another engine on the same socket, which are left alone.

        Raises:
            ListenError: The address cannot be had, or the certificate cannot be used.
        """
        listening = open_socket(self._listener, inherited)
        self._port = listening.getsockname()[1]
        options = self._options
        own = None if self._dispatcher is not None else Dispatcher(options.threads, share=options.threads)
        dispatcher = self._dispatcher or own
        assert dispatcher is not None
        crew = dispatcher.crew(_RECEIVERS)
        requests = Requests(self._application, dispatcher, crew, options, (self._listener.address, self._port))
        requests.body_limit = self._body_limit
        try:
            worker = GranianWorker(listening, options, self._tls, _RECEIVERS)
            self._service = _Service(listening, worker, requests, own, others)
            self._service.start()
        except BaseException as error:  # a panic of granian's is no Exception
            listening.close()
            dispatcher.dismiss(crew)
            self._service = None
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise ListenError(
                f"Cannot serve {self._listener}: {error}; check the certificate and its key (PEM, PKCS#8)."
            ) from error

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on, in bytes."""
        self._body_limit = limit
        if self._service is not None:
            self._service.requests.body_limit = limit

    def drain(self, grace: float, *, only: frozenset[Address] | None = None) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads.

        Args:
            grace: Seconds after which what still runs is cut off.
            only: The clients whose connections are its own, where another engine serves on the same socket.

        Returns:
            Whether every request in flight was answered.
        """
        service, self._service = self._service, None
        return service is None or service.drain(grace, only)


class _Service:
    """The engine from one start to the drain.

    Attributes:
        requests: What it receives.
    """

    def __init__(
        self,
        listening: socket.socket,
        worker: GranianWorker,
        requests: Requests,
        own: Dispatcher | None,
        others: frozenset[Address],
    ) -> None:
        self.requests = requests
        self._listening = listening
        self._worker = worker
        self._own = own
        self._port: int = listening.getsockname()[1]
        self._others = others
        self._only: frozenset[Address] | None = None
        self._paused = False
        # No other engine's name, even on the same port: its threads are recognised by it.
        self._name = f"gr-{self._port}-{listening.fileno()}"
        self._draining = threading.Event()
        self._caretaker = threading.Thread(target=self._take_care, name=self._name, daemon=True)

    def pause(self) -> frozenset[Address]:
        """Accept no more until `resume`; return the clients that are connected."""
        self._worker.pause()
        self._paused = True
        return frozenset(connections.clients(self._port))

    def resume(self) -> None:
        """Accept again."""
        self._paused = False
        self._worker.resume()

    def start(self) -> None:
        """Begin to serve."""
        with named(self._name):
            self._worker.start(self.requests.schedule)
        self._caretaker.start()

    def _take_care(self) -> None:
        """Give up on clients that keep the server waiting, and on connections on which nothing happens."""
        timeout = self.requests.options.idle_timeout
        pause = min(_CHECK_SECONDS, timeout / 4)
        looked = made_room = time.monotonic()
        while not self._draining.wait(pause):
            now = time.monotonic()
            try:
                for each in tuple(self.requests.waiting):
                    each.check(now)
                if self.requests.left:
                    self._close_left()
                if now > looked + max(0.5, timeout / 4):
                    looked = now
                    self._cut_idle(timeout)
                if now > made_room + CROWDED_SECONDS:
                    made_room = now
                    self._make_room()
            except Exception:
                _LOGGER.exception("a look at the clients of port %d failed", self._port)

    def _connections(self) -> Iterator[socket.socket]:
        """Yield its connections, and no other engine's, as far as that can be told."""
        for found in connections.connections(self._port):
            client = found.getpeername()[:2]
            if client not in self._others if self._only is None else client in self._only:
                yield found

    def _close_left(self) -> None:
        """Close the connections on which the rest of a refused body was given up."""
        left = {self.requests.left.pop() for _ in range(len(self.requests.left))}
        connections.cut(found for found in self._connections() if found.getpeername()[:2] in left)

    def _cut_idle(self, seconds: float) -> None:
        """Close connections on which nothing happened for so long, also those that never sent anything.

        Those on which a request is being answered stay, unless the client takes nothing of the response.
        """
        answering = {call.peer for call in tuple(self.requests.calls)}
        self._others &= frozenset(connections.clients(self._port))  # the others' addresses may become its clients'
        for found in self._connections():
            if connections.idle_seconds(found) > seconds and found.getpeername()[:2] not in answering:
                found.shutdown(socket.SHUT_RDWR)

    def _make_room(self) -> None:
        """At the limit of connections, close some that were idle for the longest, so that others get their turn."""
        limit = self.requests.options.connection_limit
        if connections.descriptors() < limit:
            return
        idle = sorted(connections.idle_seconds(found) for found in self._connections())
        if len(idle) >= limit:
            self._cut_idle(max(CROWDED_SECONDS, idle[-max(1, limit // 2)] - _EQUAL_SECONDS))

    def drain(self, grace: float, only: frozenset[Address] | None) -> bool:
        """Stop as `GranianEngine.drain` says."""
        self._only = only
        deadline = time.monotonic() + grace
        requests, worker = self.requests, self._worker
        self._draining.set()
        self._caretaker.join()
        while not self._paused and connections.waiting(self._listening) and time.monotonic() < deadline:
            time.sleep(0.001)  # granian still accepts
        worker.refuse()
        # Nobody waits for an engine that was replaced, so its clients get more time to say what is on its way.
        quiet, busy = (_QUIET_SECONDS, _BUSY_SECONDS) if only is None else (4 * _QUIET_SECONDS, 4 * _BUSY_SECONDS)
        self._quieten(deadline, quiet, busy)
        worker.stop()
        while not worker.ended.wait(_LOOK_SECONDS) and time.monotonic() < deadline:
            self._cut_idle(quiet)
        answered = not requests.calls
        if not worker.ended.is_set():
            connections.cut(self._connections())
            worker.ended.wait(2.0)
        requests.dispatcher.dismiss(requests.crew)
        if self._own is not None:
            self._own.close(max(0.1, deadline - time.monotonic()) if answered else 0.1)
        wait_for_threads(self._name, 2.0)
        return answered

    def _quieten(self, deadline: float, quiet: float, busy: float) -> None:
        """Wait until nothing happens any more, or at least what was in flight at first has been answered.

        granian's stop closes HTTP/1.1 connections between two requests at once, even when the next one is on its way,
        and tells HTTP/2 clients to go away, which not all of them (h2, httpx) survive with a request in flight. So it
        is stopped late: HTTP/1.1 clients are told `Connection: close` first, and slow requests are waited for.
        """
        requests = self.requests
        requests.draining = True
        begun = time.monotonic()
        first = set(requests.calls)
        patience = begun + (deadline - begun) / 2
        while (now := time.monotonic()) < patience:
            idle = all(connections.idle_seconds(found) > quiet for found in self._connections())
            if idle and not requests.calls:
                return
            if now > begun + busy and not first & requests.calls:
                return
            time.sleep(_LOOK_SECONDS)
