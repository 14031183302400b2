"""What HTTP/2 clients of tests send through, so that threads may share them."""

from __future__ import annotations

import threading
from typing import Any

import httpx


class ConnectionPerThread(httpx.BaseTransport):
    """Gives each thread connections of its own.

    httpx's HTTP/2 connection is not safe to share: threads send each other's frames in the wrong order, and the
    server ends the connection with PROTOCOL_ERROR, as it must (RFC 9113, section 5.1.1).
    """

    def __init__(self, **options: Any) -> None:
        """Connect with what `httpx.HTTPTransport` takes."""
        self._options = options
        self._local = threading.local()
        self._made: list[httpx.HTTPTransport] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over the thread's own connection."""
        transport: httpx.HTTPTransport | None = getattr(self._local, "transport", None)
        if transport is None:
            transport = self._local.transport = httpx.HTTPTransport(**self._options)
            self._made.append(transport)
        return transport.handle_request(request)

    def close(self) -> None:
        """Close every thread's connections."""
        while self._made:
            self._made.pop().close()
