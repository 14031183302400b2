"""granian's worker, in this process and without an event loop. Only this module uses what granian doesn't publish.

granian receives requests in Rust, and calls a scheduler for each one in a Python thread of its own pool. The scheduler
here calls a function right there. tests/engines/test_granian_worker.py checks each behaviour relied on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from granian._granian import ASGIWorker, CallbackScheduler, WorkerSignal
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]  # public there, but without __all__

from plughost._servers.connections import BACKLOG, connect_once, require_descriptors, wait_until_accepted
from plughost._servers.processor import call_in_named_thread, call_when_idle
from plughost._servers.threads import STACK_BYTES

if TYPE_CHECKING:
    from plughost._servers.base import EngineOptions
    from plughost._servers.granian_response import Watcher

_HEADER_BYTES: Final = 64 * 1024
_HTTP1_BUFFER: Final = 128 * 1024
_IDLE_SECONDS: Final = 30  # after which an idle thread of granian's pool ends, except the first
_START_DESCRIPTORS: Final = 24  # a start takes 9, other threads some; if granian gets too few, it ends the process


class _ImmediateLoop:
    """Stands in for an event loop: it runs callbacks at once."""

    def call_soon(self, callback: Callable[..., object], *args: object, context: object = None) -> None:
        callback(*args)

    call_soon_threadsafe = call_soon


class _Scheduler(CallbackScheduler):
    """Calls a function for each request, in the thread that received it."""

    def __new__(cls, loop: _ImmediateLoop, schedule: Callable[[Watcher], None]) -> Self:
        return super().__new__(cls, loop, schedule, None, None, None)  # type: ignore[call-arg]  # granian leaves it untyped

    def __init__(self, loop: _ImmediateLoop, schedule: Callable[[Watcher], None]) -> None:
        self._schedule_fn = schedule


class GranianWorker:
    """Listens on a socket, and calls a function for each request.

    Args:
        listening: The socket. It stays the caller's.
        options: Limits, time-outs and the certificate.
        threads: How many threads receive requests at most. One at least is there always.

    Attributes:
        ended: Set when it has stopped.
        is_paused: Whether it accepts no connections.
        name: That of its native threads.
    """

    def __init__(self, listening: socket.socket, options: EngineOptions, threads: int) -> None:
        """Read the certificate, if there is one.

        Raises:
            OSError: It cannot be read, or does not fit its key. Or there are too few descriptors for `start`.
        """
        require_descriptors(_START_DESCRIPTORS)
        tls_args: tuple[Any, ...] = (False, None, None, None, "tls1.2", None, [], False)
        if (tls := options.tls) is not None:
            tls.check()
            files = str(tls.certificate.absolute()), str(tls.key.absolute())
            oldest = "tls1.3" if options.tls_policy == "modern" else "tls1.2"
            clients = None if options.client_ca is None else str(options.client_ca)
            tls_args = (True, *files, None, oldest, clients, [], clients is not None)
        self.ended = threading.Event()
        self.is_paused = False
        self.name = f"gr-{listening.fileno()}-{listening.getsockname()[1]}"  # at most 15 characters count
        self._listening = listening
        self._descriptor = listening.dup().detach()  # granian closes it
        arguments: tuple[Any, ...] = (self._descriptor, False, BACKLOG)
        if not sys.platform.startswith(("linux", "freebsd")):  # where granian takes no backlog
            arguments = arguments[:2]
        self._signal = WorkerSignal()
        http1 = HTTP1Settings(header_read_timeout=options.idle_timeout * 1000, max_buffer_size=_HTTP1_BUFFER)
        # Milliseconds, and seconds. Pings detect dead peers; more frequent ones would make idle peers look active.
        http2 = HTTP2Settings(
            keep_alive_interval=options.idle_timeout * 2000, keep_alive_timeout=20, max_headers_size=_HEADER_BYTES
        )
        where, pool = (None, SocketHolder(*arguments)), (1, 1, threads, _IDLE_SECONDS)
        http: tuple[Any, ...] = ("auto", http1, http2, False, None)
        self._worker: Any = ASGIWorker(1, where, None, *pool, options.connection_limit, *http, *tls_args, (None, None))  # type: ignore[call-arg, arg-type]  # granian's stub is behind its code

    def start(self, schedule: Callable[[Watcher], None], bind: Callable[[], object]) -> None:
        """Serve from now on. Return once connections are accepted.

        granian reads its descriptor in a thread of its own. `pause` before that would leave it deaf for good.

        Args:
            schedule: Called for each request, in a thread of granian's pool. What it raises is lost.
            bind: Called in the thread that granian's own inherit from, to choose their processors.

        Raises:
            BaseException: granian panics, at a key that it doesn't know.
        """
        os.environ.setdefault("RUST_MIN_STACK", str(STACK_BYTES))
        loop = _ImmediateLoop()
        serve = partial(self._worker.serve_mtr, _Scheduler(loop, schedule), loop, self._signal)
        with socket.create_server(("127.0.0.1", 0), backlog=0) as idle_socket:
            self._signal.add_cb(partial(call_when_idle, call_in_named_thread(self.name, serve, bind), self.ended.set))
            idle_socket.setblocking(False)
            self._idle_descriptor = idle_socket.detach()
        with socket.socket(self._listening.family) as client:
            connect_once(client, self._listening)
        wait_until_accepted(self._listening)

    def pause(self) -> None:
        """Accept no more connections. Leave the port and the connections alone.

        granian's descriptor is replaced by that of a socket that nobody connects to.
        """
        if not self.is_paused:
            os.dup2(self._idle_descriptor, self._descriptor, inheritable=False)
            os.close(self._idle_descriptor)
            self.is_paused = True

    def resume(self) -> None:
        """Accept again, or raise OSError if no descriptor is left.

        granian notices connections that arrived meanwhile only when the next one arrives, so one is made.
        """
        if self.is_paused:
            with socket.socket(self._listening.family) as client:
                self._idle_descriptor = os.dup(self._descriptor)
                self.is_paused = False
                os.dup2(self._listening.fileno(), self._descriptor, inheritable=False)
                connect_once(client, self._listening)

    def close_port(self) -> None:
        """Close the port, by closing the last descriptor of its socket. Leave the connections alone."""
        self.pause()
        with contextlib.suppress(OSError):
            self._listening.close()

    def stop(self) -> None:
        """Close idle connections, and end when the others are closed. Then `ended` is set."""
        self._signal.set()
