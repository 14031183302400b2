"""Opening the socket that an engine listens on, the same way for every engine."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

from plughost._servers.base import ListenError

if TYPE_CHECKING:
    from plughost._api.host import Listener

BACKLOG: Final = 1024

_SO_ATTACH_FILTER: Final = 26  # of asm-generic/socket.h
_DROP: Final = struct.pack("@HBBI", 0x06, 0, 0, 0)  # a packet filter of one instruction: take 0 bytes of each

_ADVICE: Final = {
    errno.EADDRINUSE: "another program uses the port; stop it, or set another port for the site",
    errno.EACCES: "ports below 1024 need privileges; set a port above 1023, or put a proxy in front",
    errno.EADDRNOTAVAIL: "this machine does not have that address; set one that it has, such as 127.0.0.1",
}


def open_socket(listener: Listener, inherited: socket.socket | None = None) -> socket.socket:
    """Return a listening TCP socket for a listener.

    The socket never shares its port (no SO_REUSEPORT), so that two hosts cannot answer on one port unnoticed.

    Args:
        listener: Where to listen; port 0 lets the system choose one.
        inherited: A listening socket to use instead; it belongs to the caller no more.

    Raises:
        ListenError: The address cannot be had.
    """
    if inherited is not None:
        if not inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ListenError(f"Cannot listen on {listener}: the inherited socket is not a listening one.")
        return inherited
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.address, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(_message(listener, error)) from error
    try:
        if os.name == "posix":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise ListenError(_message(listener, error)) from error
    return opened


def turn_away(listening: socket.socket) -> None:
    """Let no further connection into the backlog of a socket that is about to be closed.

    A connection that comes in between the last accept and the close would be reset, with its request. Now it waits
    until its client tries again a second later, and is refused then. What is in the backlog can still be accepted.

    It needs Linux, and does nothing elsewhere. The socket must not be in use by another process.
    """
    if sys.platform != "linux":
        return
    drop = ctypes.create_string_buffer(_DROP)
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(drop)))


def _message(listener: Listener, error: OSError) -> str:
    """Say which listener cannot be had, why, and what to do."""
    if isinstance(error, socket.gaierror):
        advice = "the address is unknown; set an IP address or a host name of this machine"
    else:
        advice = _ADVICE.get(error.errno or 0, "check the address and the port of the site")
    return (
        f"Cannot listen on address {listener.address}, port {listener.port} "
        f"(site {listener.site}, {listener.scheme}): {error.strerror or error}; {advice}."
    )
