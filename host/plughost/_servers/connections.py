"""The open connections of a listening port, found among this process's file descriptors.

granian keeps its sockets to itself. What it offers no way to do is done to the sockets from here: to close what never
sends anything, and to end a drain whose grace is over.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DESCRIPTORS: Final = Path("/dev/fd")
# Of struct tcp_info in linux/tcp.h: tcpi_unacked; tcpi_last_data_sent, tcpi_last_data_recv in milliseconds.
_TCP_INFO: Final = struct.Struct("=24xI16xI4xI")


def connections(port: int) -> Iterator[socket.socket]:
    """Yield each connection that was accepted on a port, as a duplicate that is closed after its turn."""
    try:
        names = os.listdir(_DESCRIPTORS)  # noqa: PTH208 - names are what is wanted, of up to thousands
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in {socket.AF_INET, socket.AF_INET6} and found.getsockname()[1] == port:
                    found.getpeername()  # raises for the listening socket
                    yield found


def descriptors() -> int:
    """Return how many file descriptors this process has: no fewer than connections; 0 where that can't be told."""
    try:
        return len(os.listdir(_DESCRIPTORS))  # noqa: PTH208 - only how many there are
    except OSError:
        return 0


def clients(port: int) -> Iterator[tuple[str, int]]:
    """Yield the address of each client that is connected to a port."""
    for found in connections(port):
        address, client_port = found.getpeername()[:2]
        yield address, client_port


def cut(found: Iterable[socket.socket]) -> None:
    """End connections at once, whatever is being sent."""
    for each in found:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def idle_seconds(connection: socket.socket) -> float:
    """Return for how long nothing was sent or received; 0 where the system does not tell (elsewhere than Linux)."""
    _, sent, received = _tcp_info(connection)
    return min(sent, received) / 1000


def waiting(listening: socket.socket) -> int:
    """Return how many connections wait to be accepted; 0 where the system does not tell (elsewhere than Linux)."""
    return _tcp_info(listening)[0]


def _tcp_info(connection: socket.socket) -> tuple[int, int, int]:
    if not sys.platform.startswith("linux"):
        return 0, 0, 0
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    unacked, sent, received = _TCP_INFO.unpack(raw)
    return unacked, sent, received
