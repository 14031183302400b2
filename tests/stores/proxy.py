"""A TCP proxy in front of a real server, which a test can cut and restore."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_TERMINATE = b"X\0\0\0\4"  # PostgreSQL's message


class Proxy:
    """Forwards connections to a server unless it is cut.

    Attributes:
        port: Where it listens, on 127.0.0.1; nothing does while it is cut.
        attempts: How many connections were made to it so far.
        every: Which of the attempts come through: each, each second one, and so on; the others are broken.
        cut_after: Words of a client, after which the server's answer is not passed on, and the connection broken.
        hang_after: Words of a client, after which nothing is passed on.
        swallow: Words of a client that are not passed on, as a pooler keeps them that waits for its server.
        swallowed: How many times it did not pass them on.
        keep_open: Whether the server learns of the end of a client's connection only when all are dropped.
    """

    def __init__(self, host: str, port: int) -> None:
        """Start listening."""
        self._server = (host, port)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._dropped = threading.Event()
        self._passing = threading.Event()
        self._passing.set()
        # Bound but not listening, the socket keeps the port reserved while the proxy is cut.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]
        self.attempts = 0
        self.every = 1
        self.cut_after: bytes | None = None
        self.hang_after: bytes | None = None
        self.swallow: bytes | None = None
        self.swallowed = 0
        self.keep_open = False
        self._doomed: set[socket.socket] = set()
        self.mend()

    def mend(self) -> None:
        """Listen again on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._start(self._accept, self._listener)

    def hang(self) -> None:
        """Forward nothing and keep connections, like a server that was suspended."""
        self._passing.clear()

    def go_on(self) -> None:
        """Forward again, beginning with what was held back."""
        self._passing.set()

    def drop(self) -> None:
        """Break every present connection; new ones are still accepted."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        self._dropped.set()
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def stop_accepting(self) -> None:
        """Refuse new connections, and keep the present ones."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self.stop_accepting()
        self.drop()

    def close(self) -> None:
        """Cut, and wait for the threads."""
        self.go_on()
        self.cut()
        self._held.close()
        for thread in self._threads:
            thread.join(30)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type] # a bound method
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                self.attempts += 1
                if self.attempts % self.every:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
            except OSError:
                return
            with self._lock:
                self._sockets |= {client, server}
            if self._listener is not listener:
                self.drop()
            self._start(self._pass_on, client, server)
            self._start(self._pass_on, server, client)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.keep_open and data == _TERMINATE:
                    self._dropped.wait()
                    break
                self._passing.wait()
                if source in self._doomed:
                    break
                if self.swallow is not None and self.swallow in data:
                    self.swallowed += 1
                    continue
                if self.cut_after is not None and self.cut_after in data:
                    self._doomed.add(target)
                if self.hang_after is not None and self.hang_after in data:
                    self.hang()  # first: the server may answer at once
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(source)
        source.close()
