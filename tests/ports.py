"""Ports for servers that have to be told theirs."""

from __future__ import annotations

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port that nobody listens on, and that no system gives to a process that asks for any port."""
    while True:
        port = random.randrange(10_000, 32_768)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
