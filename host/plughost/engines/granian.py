"""The engine for TLS and HTTP/2, on granian's embedded server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from plughost.engines import connections
from plughost.engines.adapter import Adapter
from plughost.engines.base import EngineOptions, Listener, ListenError, TLSFiles
from plughost.engines.granian_server import OwnSocketServer, server_settings
from plughost.engines.listening import open_socket
from plughost.engines.native_threads import name_this_thread, wait_for_threads
from plughost.engines.pool import Pool

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_QUIET_SECONDS: Final = 0.25  # for how long a connection has to be idle while draining before it is closed
_BUSY_SECONDS: Final = 1.0  # for how long clients that ask on while draining are waited for
_LOOK_SECONDS: Final = 0.05
_LOGGER: Final = logging.getLogger("plughost.engines")


class GranianEngine:
    """Serves a WSGI application over HTTP/1.1 and HTTP/2, with or without TLS.

    Args:
        application: What is called for each request.
        listener: Where it is reached.
        options: Threads, limits and time-outs.
        tls: The certificate; needed where the listener's scheme is https.
    """

    def __init__(
        self, application: WSGIApplication, listener: Listener, options: EngineOptions, tls: TLSFiles | None = None
    ) -> None:
        """Prepare; nothing is opened before `start`."""
        self._application = application
        self._listener = listener
        self._options = options
        self._tls = tls
        self._port = listener.port
        self._body_limit = options.body_limit
        self._service: _Service | None = None

    @property
    def port(self) -> int:
        """The TCP port it listens on; valid once started."""
        return self._port

    def start(self, inherited: socket.socket | None = None) -> None:
        """Open the listener and serve; connections are accepted on return.

        Raises:
            ListenError: The address cannot be had, or the certificate cannot be used.
        """
        listening = open_socket(self._listener, inherited)
        try:
            self._port = listening.getsockname()[1]
            server = OwnSocketServer(listening, **server_settings(self._options, self._tls))
            service = _Service(self._application, self._options, server, listening)
            service.adapt(self._listener.address, self._port, self._body_limit)
            service.start()
        except (OSError, ValueError, RuntimeError) as error:
            listening.close()
            raise ListenError(
                f"Cannot serve {self._listener}: {error}; check the certificate and its key (PEM, PKCS#8)."
            ) from error
        self._service = service

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on, in bytes."""
        self._body_limit = limit
        if self._service is not None:
            self._service.adapter.body_limit = limit

    def drain(self, grace: float) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads.

        Args:
            grace: Seconds after which what still runs is cut off.

        Returns:
            Whether every request in flight was answered.
        """
        service, self._service = self._service, None
        return service is None or service.drain(grace)


class _Service:
    """The engine from one start to the drain: granian in a loop in a thread, and the threads of the application."""

    adapter: Adapter

    def __init__(
        self, application: WSGIApplication, options: EngineOptions, server: OwnSocketServer, listening: socket.socket
    ) -> None:
        self._application = application
        self._options = options
        self._server = server
        self._listening = listening
        self._port: int = listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._draining = asyncio.Event()
        self._settled = threading.Event()  # it serves, or has failed to
        self._failure: BaseException | None = None
        self._deadline = 0.0
        self._answered = False
        self._name = f"granian-{self._port}"
        self._pool = Pool(options.threads, f"{self._name}-worker")
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def adapt(self, address: str, port: int, body_limit: int) -> None:
        """Make the application one of ASGI, and give it to granian."""
        self.adapter = Adapter(
            self._application,
            self._pool,
            loop=self._loop,
            address=address,
            port=port,
            body_limit=body_limit,
            stall_timeout=self._options.idle_timeout,
        )
        self._server.target = self.adapter  # type: ignore[assignment]  # typed as a name to import, for granian's CLI

    def start(self) -> None:
        """Begin to serve.

        Raises:
            RuntimeError: granian does not.
        """
        self._thread.start()
        self._settled.wait()
        if self._failure is not None:
            self._thread.join()
            self._pool.close(1.0)
            raise RuntimeError(str(self._failure)) from self._failure

    def drain(self, grace: float) -> bool:
        """Stop as `GranianEngine.drain` says."""
        self._deadline = time.monotonic() + grace
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._draining.set)
        self._thread.join()
        wait_for_threads(self._name, 2.0)
        self._pool.close(max(0.1, self._deadline - time.monotonic()) if self._answered else 0.1)
        return self._answered

    # In the loop's thread.

    def _run(self) -> None:
        name_this_thread(self._name)
        self._pool.count_in()
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # a panic of granian's is no Exception
            if self._settled.is_set():
                _LOGGER.exception("the loop of port %d ended", self._port)
            self._failure = error
        finally:
            self._listening.close()
            self._settled.set()

    async def _serve(self) -> None:
        serving = asyncio.ensure_future(self._server.serve())
        for _ in range(8):  # its tasks begin one after the other
            await asyncio.sleep(0)
        if serving.done():
            await serving
        if not self._server.alive:
            raise RuntimeError("granian's worker did not start")
        self._settled.set()
        reaper = asyncio.ensure_future(self._close_idle())
        await self._draining.wait()
        reaper.cancel()
        while connections.waiting(self._listening) and time.monotonic() < self._deadline:
            await asyncio.sleep(0.001)  # granian still accepts
        self._server.refuse()
        await self._quieten()
        self._server.stop()  # type: ignore[no-untyped-call]  # granian leaves it untyped
        self._answered = await self._finish(serving)

    async def _close_idle(self) -> None:
        """Close connections on which nothing happens, also those that never sent anything."""
        timeout = self._options.idle_timeout
        while True:
            await asyncio.sleep(max(0.5, timeout / 4))
            self._cut_idle(timeout)

    def _cut_idle(self, seconds: float) -> None:
        """Close what was idle for so long, and is not being answered."""
        answering = {call.peer for call in self.adapter.calls}
        for found in connections.connections(self._port):
            if connections.idle_seconds(found) > seconds and found.getpeername()[:2] not in answering:
                found.shutdown(socket.SHUT_RDWR)

    async def _quieten(self) -> None:
        """Wait until nothing happens any more, or at least what was in flight at first has been answered.

        granian's stop closes HTTP/1.1 connections between two requests at once, even when the next one is on its way,
        and tells HTTP/2 clients to go away, which not all of them (h2, httpx) survive with a request in flight. So it
        is stopped late: HTTP/1.1 clients are told `Connection: close` first, and slow requests are waited for.
        """
        self.adapter.drain()
        begun = time.monotonic()
        first = set(self.adapter.calls)
        patience = begun + (self._deadline - begun) / 2
        while (now := time.monotonic()) < patience:
            idle = all(
                connections.idle_seconds(found) > _QUIET_SECONDS for found in connections.connections(self._port)
            )
            if idle and not self.adapter.calls:
                return
            if now > begun + _BUSY_SECONDS and not first & self.adapter.calls:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _finish(self, serving: asyncio.Future[None]) -> bool:
        """Wait for what is in flight; return whether it was answered."""
        while not serving.done() and time.monotonic() < self._deadline:
            await asyncio.wait({serving}, timeout=_LOOK_SECONDS)
            self._cut_idle(_QUIET_SECONDS)
        answered = not self.adapter.calls
        if not serving.done():
            connections.cut(self._port)
            await asyncio.wait({serving}, timeout=2.0)
        if serving.done():
            await serving
        return answered
