"""The engine for plain HTTP/1.1, on waitress."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from waitress.adjustments import Adjustments

from plughost._servers.base import CROWDED_SECONDS
from plughost._servers.dispatcher import Dispatcher
from plughost._servers.listening import BACKLOG, open_socket
from plughost._servers.waitress_loop import Server

if TYPE_CHECKING:
    import socket

    from plughost._api.host import Listener
    from plughost._servers.base import Application, EngineOptions

QUIET_SECONDS: Final = 0.25
"""How long an idle connection stays open while draining, in case a request is on its way."""

_STALLED_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 1.0
_AHEAD_BYTES: Final = 256 * 1024  # how much of a response is made before the client has taken what came before
_LOGGER: Final = logging.getLogger("plughost._servers")


class WaitressEngine:
    """Serves a WSGI application over HTTP/1.1.

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
        self._application = application
        self._listener = listener
        self._options = options
        self._port = listener.port
        self._body_limit = options.body_limit
        self._server: Server | None = None
        self._dispatcher = dispatcher
        self._own: Dispatcher | None = None
        self._loop: threading.Thread | None = None
        self._deadline = 0.0
        self._drain_requested = threading.Event()
        self._answered = True

    @property
    def port(self) -> int:
        """The TCP port it listens on; valid once started."""
        return self._port

    def start(self, inherited: socket.socket | None = None) -> None:
        """Open the listener and serve; connections are accepted on return.

        Args:
            inherited: A listening socket to use instead of opening one.

        Raises:
            ListenError: The address cannot be had.
        """
        listening = open_socket(self._listener, inherited)
        self._port = listening.getsockname()[1]
        name = f"waitress-{self._port}"
        self._drain_requested.clear()
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self._own = Dispatcher(self._options.threads, share=self._options.threads)
        self._server = Server(self._application, listening, dispatcher, self._adjustments())
        self._loop = threading.Thread(target=self._run, args=(self._server,), name=name, daemon=True)
        self._loop.start()

    def set_body_limit(self, limit: int) -> None:
        """Change the largest body that is read from now on, in bytes."""
        self._body_limit = limit
        if self._server is not None:
            self._server.adj.body_limit = limit

    def drain(self, grace: float) -> bool:
        """Accept no more, answer what is in flight, close every connection, and end the threads.

        Args:
            grace: Seconds after which what still runs is cut off.

        Returns:
            Whether every request in flight was answered.
        """
        if self._loop is None or self._server is None:
            return True
        self._deadline = time.monotonic() + grace
        self._drain_requested.set()
        with contextlib.suppress(OSError):  # the loop has ended already
            self._server.wake()
        self._loop.join()
        if self._own is not None:
            self._own.close(max(0.1, self._deadline - time.monotonic()) if self._answered else 0.1)
        self._server.close_all()
        self._server = self._own = self._loop = None
        return self._answered

    def _adjustments(self) -> Any:
        options = self._options
        adjustments = Adjustments(
            host="127.0.0.1",
            port=self._port,
            threads=options.threads,
            backlog=BACKLOG,
            connection_limit=options.connection_limit,
            channel_timeout=options.idle_timeout,
            cleanup_interval=CROWDED_SECONDS,
            channel_request_lookahead=1,
            asyncore_use_poll=True,
            max_request_body_size=sys.maxsize,
            max_request_header_size=64 * 1024,
            inbuf_overflow=512 * 1024,
            outbuf_high_watermark=_AHEAD_BYTES,
            expose_tracebacks=False,
            log_socket_errors=False,
            clear_untrusted_proxy_headers=False,
            server_name=self._listener.address,
            ident="plughost",
        )
        adjustments.body_limit = self._body_limit
        adjustments.options = options
        return adjustments

    def _run(self, server: Server) -> None:
        """Move bytes until drained; the life of the loop's thread."""
        try:
            while not self._drain_requested.is_set():
                server.look_around(_POLL_SECONDS)
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
        while server.active_channels and time.monotonic() < self._deadline:
            now = time.monotonic()
            if any(channel.busy() for channel in server.active_channels.values()):
                calm_since = now
            for channel in list(server.active_channels.values()):
                patience = QUIET_SECONDS if channel.request is None else _STALLED_SECONDS
                if not channel.busy() and now - max(calm_since, channel.last_activity) > patience:
                    channel.will_close = True
            server.maintenance(now)
            server.look_around(QUIET_SECONDS / 5)
        return not any(channel.busy() for channel in server.active_channels.values())
