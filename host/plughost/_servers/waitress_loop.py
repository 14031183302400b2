"""The loop that moves bytes between clients and waitress's connections.

waitress's own loop asks every connection on every turn whether it wants to read or write, and every request wakes it
twice: that took most of the time of a small request, and with a thousand idle clients nearly all of it. Here the
system keeps what each connection waits for, and a connection is asked again after something happened to it.
"""

from __future__ import annotations

import functools
import math
import socket
import sys
import threading
import time
from collections import deque
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.server import TcpWSGIServer

from plughost._servers.base import CROWDED_SECONDS
from plughost._servers.waitress_http import Answer, Channel

if TYPE_CHECKING:
    from plughost._servers.base import Application
    from plughost._servers.dispatcher import Dispatcher


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress is untyped
    """waitress's server, with a loop of its own, which can also drain.

    Attributes:
        draining: Whether no more connections are accepted.
        active_channels: The open connections, by file descriptor.
        serving: The connection that a worker's thread is answering on, as `channel`.
        changed: Connections that may wait for something else than the loop knows of.
        watched: What the loop waits for on the listening socket, of `selectors`.
    """

    channel_class = Channel
    draining = False
    active_channels: dict[int, Channel]
    watched = 0
    next_channel_cleanup = math.inf  # waitress compares it with the time of day, which can be set
    _next_maintenance = 0.0
    _pulled = False

    def __init__(
        self, application: Application, listening: socket.socket, dispatcher: Dispatcher, adjustments: Any
    ) -> None:
        """Prepare; nothing is accepted before the loop turns.

        Args:
            application: What is called for each request.
            listening: The socket to accept from.
            dispatcher: Whose threads call it.
            adjustments: waitress's settings.
        """
        self.serving = threading.local()
        self.changed: deque[Channel] = deque()
        self._dispatcher = dispatcher
        self._selector = DefaultSelector()
        super().__init__(
            application,
            map={},
            _sock=listening,
            dispatcher=dispatcher,
            adj=adjustments,
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
        )
        self._selector.register(self.trigger.socket, EVENT_READ, self.trigger)

    @functools.cached_property
    def environ(self) -> dict[str, Any]:
        """What the environ of every request begins with (PEP 3333)."""
        return {
            "SCRIPT_NAME": "",
            "SERVER_NAME": self.server_name,
            "SERVER_PORT": str(self.effective_port),
            "SERVER_SOFTWARE": self.adj.ident,
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
        }

    def add_task(self, channel: Channel) -> None:
        """Have a worker answer the next request of a connection."""
        request = channel.requests[0]
        plugin = "" if request.error else self.application.plugin_of({"REQUEST_URI": request.request_uri})
        self._dispatcher.leave(Answer(channel, self._dispatcher.lane(plugin)))

    # In the workers' threads.

    def pull_trigger(self) -> None:
        """Wake the loop where the connection that this worker answers on now waits for something else.

        waitress calls this after each change. The change comes first and is compared then; the loop notes what it
        waits for and compares again: so one of the two sees what the other did.
        """
        channel: Channel = self.serving.channel
        if channel.wanted() != channel.watched:
            self.changed.append(channel)
            self.wake()

    def wake(self) -> None:
        """Wake the loop, unless it is going to look around anyway."""
        if not self._pulled:
            self._pulled = True
            super().pull_trigger()

    # In the loop's thread.

    def look_around(self, timeout: float) -> None:
        """Move what bytes can be moved, once; wait for some at most for so many seconds."""
        self._pulled = False  # what a worker changes from here on needs a new wake-up
        self._watch(self)
        while self.changed:
            self._watch(self.changed.popleft())
        for key, events in self._selector.select(timeout):
            dispatcher = key.data
            if events & EVENT_READ and self._map.get(key.fd) is dispatcher:
                wasyncore.read(dispatcher)
            if events & EVENT_WRITE and self._map.get(key.fd) is dispatcher:
                wasyncore.write(dispatcher)
            if dispatcher is not self.trigger:
                self._watch(dispatcher)

    def _watch(self, dispatcher: Channel | Server) -> None:
        """Wait for what a connection, or the listening socket, can go on with."""
        while (wanted := dispatcher.wanted()) != (watched := dispatcher.watched):
            dispatcher.watched = wanted
            if not watched:
                self._selector.register(dispatcher.socket, wanted, dispatcher)
            elif wanted:
                self._selector.modify(dispatcher.socket, wanted, dispatcher)
            else:
                self._selector.unregister(dispatcher.socket)

    def forget(self, dispatcher: Channel | Server) -> None:
        """Wait for nothing more on a socket that is going to be closed."""
        if dispatcher.watched:
            dispatcher.watched = 0
            self._selector.unregister(dispatcher.socket)

    def wanted(self) -> int:
        """Return what to wait for on the listening socket; close idle connections where it is time to."""
        now = time.monotonic()
        if now >= self._next_maintenance:
            self._next_maintenance = now + self.adj.cleanup_interval
            self.maintenance(now)
        return EVENT_READ if self.readable() else 0

    def del_channel(self, map: Any = None) -> None:  # noqa: A002 - the name is waitress's
        """Leave the loop; the listening socket is closed next."""
        self.forget(self)
        super().del_channel(map)

    def maintenance(self, now: float) -> None:
        """Close the connections that were idle, or kept the server waiting, for too long.

        Args:
            now: `time.monotonic()`.
        """
        super().maintenance(now)
        for channel in list(self.active_channels.values()):
            if channel.overdue(now, self.adj.channel_timeout):
                channel.handle_close()  # `will_close` would wait until the client takes something
        if self.in_connection_overflow:
            idle = [each for each in self.active_channels.values() if not each.busy()]
            idle.sort(key=lambda each: each.last_activity)
            for channel in idle[: max(1, self.adj.connection_limit // 2)]:
                if now - channel.last_activity > CROWDED_SECONDS:
                    channel.handle_close()
        self.changed.extend(self.active_channels.values())

    def cut_off(self) -> None:
        """Close the connections that are left, at once."""
        for channel in list(self.active_channels.values()):
            channel.handle_close()

    def close_all(self) -> None:
        """Close whatever is still open, once no worker runs that could wake the loop."""
        self._pulled = True  # a worker that outlived the grace wakes nobody: its descriptor may be another's soon
        wasyncore.close_all(self._map, ignore_all=True)
        self._selector.close()

    def accept_rest(self) -> None:
        """Accept every connection that waits in the backlog, then close the listening socket."""
        self.draining = True
        before = -1
        while before != len(self.active_channels) and len(self._map) < self.adj.connection_limit:
            before = len(self.active_channels)
            self.handle_accept()
        self.accepting = False
        wasyncore.dispatcher.close(self)
