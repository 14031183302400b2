"""Sockets: open the one that an engine listens on, and find its connections among this process's descriptors.

granian doesn't expose its connections. This module does what it offers no way to: close connections that never send
anything, and end a drain when its grace time is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import socket
import stat
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._servers.base import ListenError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from plughost._api.host import Listener
    from plughost._servers.base import Address


def _backlog() -> int:
    """Return how many connections may wait on a listener: half of what the system allows, for `connect_once`."""
    try:
        return min(1024, int(Path("/proc/sys/net/core/somaxconn").read_text(encoding="ascii")) // 2)
    except OSError:  # other than Linux
        return 1024


BACKLOG: Final = _backlog()
RESERVED_DESCRIPTORS: Final = 64
"""Descriptors that connections leave for stores, logs and other files."""

OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
MORE_FILES: Final = "let this process open more files (LimitNOFILE of the unit, ulimit -n)"

_ACCEPT_TIMEOUT: Final = 1.0
_HANDSHAKE_SECONDS: Final = 0.01  # in which connections that have begun are completed
_MIN_CONNECTIONS: Final = 8  # connections of a listener, however few descriptors there are
_DESCRIPTOR_FOLDER: Final = Path("/dev/fd")
_SO_ATTACH_FILTER: Final = 26  # of asm-generic/socket.h
_DROP_SYN: Final = (  # a classic BPF program: code, jump if true, jump if false, operand
    (0x30, 0, 0, 13),  # load the byte of the TCP header that has the flags
    (0x45, 0, 1, 0x02),  # is SYN set?
    (0x06, 0, 0, 0),  # then drop the packet
    (0x06, 0, 0, 0xFFFFFFFF),  # else accept it whole
)
# Of struct tcp_info in linux/tcp.h: tcpi_unacked; tcpi_last_data_sent, tcpi_last_data_recv in milliseconds;
# tcpi_bytes_acked.
_TCP_INFO: Final = struct.Struct("=24xI16xI4xI64xQ")
_FAMILIES: Final = frozenset({socket.AF_INET, socket.AF_INET6})
_ADVICE: Final = {
    errno.EADDRINUSE: "another program uses the port; stop it, or set another port for the site",
    errno.EACCES: "ports below 1024 need privileges; set a port above 1023, or put a proxy in front",
    errno.EMFILE: MORE_FILES,
    errno.EADDRNOTAVAIL: "this machine does not have that address; set one that it has, such as 127.0.0.1",
}


def open_socket(listener: Listener) -> socket.socket:
    """Return a listening TCP socket for a listener.

    The socket never shares its port (no SO_REUSEPORT), so that two hosts cannot answer on one port unnoticed. On `::`,
    all addresses of the machine, it serves IPv4, too, where the system can.

    Raises:
        ListenError: The address cannot be had.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            listener.address, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        is_dual = address[0] == "::" and socket.has_dualstack_ipv6()
        opened = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        number = error.errno or 0
        reason, advice = os.strerror(number), _ADVICE.get(number, "check the address and the port of the site")
        if isinstance(error, socket.gaierror):
            reason = error.strerror or str(error)
            advice = "the address is unknown; set an IP address or a host name of this machine"
        raise ListenError(
            f"Cannot listen on address {listener.address}, port {listener.port} "
            f"(site {listener.site}, {listener.scheme}): {reason}; {advice}."
        ) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit that
    return opened


def peer_address(address: str) -> str:
    """Return the address of a client, as IPv4 if a socket of both families shows it IPv4-mapped."""
    return address.rpartition(":")[2] if address.startswith("::ffff:") and "." in address else address


def connect_once(client: socket.socket, listening: socket.socket) -> None:
    """Connect to a listening socket, even one whose backlog is full: another client may take the place made for this.

    Whichever comes first, who listens is told of a new connection, and accepts the older ones, too.
    """
    with contextlib.suppress(OSError):
        client.settimeout(1.0)
        listening.listen(max(BACKLOG, backlog_size(listening)) + 1)  # nobody may have accepted an earlier one
        try:
            client.connect(listening.getsockname())
        finally:
            listening.listen(BACKLOG)


def wait_until_accepted(listening: socket.socket) -> None:
    """Return once no connection waits to be accepted, or after 1 s."""
    deadline = time.monotonic() + _ACCEPT_TIMEOUT
    while backlog_size(listening) and time.monotonic() < deadline:
        time.sleep(0.001)


def drop_new_connections(listening: socket.socket) -> None:
    """Let no further connection begin on a socket that is about to be closed.

    A connection that arrives between the last accept and the close would be reset, with its request. With this, its
    first packet (SYN) is dropped: the client tries again a second later, and is refused then. Connections that have
    begun are completed, and those in the backlog can still be accepted.

    It needs Linux, and does nothing elsewhere. The socket must not be in use by another process.
    """
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(b"".join(struct.pack("@HBBI", *each) for each in _DROP_SYN))
        packed = struct.pack("@HP", len(_DROP_SYN), ctypes.addressof(program))
        with contextlib.suppress(OSError):
            listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, packed)
            time.sleep(_HANDSHAKE_SECONDS)


def raise_file_limit() -> int:
    """Let this process open as many files as the system allows. Return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS refuses an unlimited one
            hard = soft
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def require_descriptors(number: int) -> None:
    """Raise OSError unless so many further descriptors can be had now."""
    with contextlib.ExitStack() as stack:
        try:
            for _ in range(number):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            error.filename = None  # messages name what couldn't be read instead
            raise


def connections_per_listener(wanted: int, listeners: int, file_limit: int, taken: int) -> int:
    """Return how many of the `wanted` connections each further listener may take within this process's `file_limit`.

    Others may take `taken` connections already.
    """
    reserved = min(RESERVED_DESCRIPTORS, file_limit // 2)
    return max(_MIN_CONNECTIONS, min(wanted, (file_limit - reserved - taken) // max(1, listeners)))


def connections(port: int) -> Iterator[tuple[Address, socket.socket]]:
    """Yield each accepted connection of a port: the client's address, and a socket that is closed afterwards."""
    for number in _open_descriptors():
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with _borrow(number) as connection:
                is_tcp = connection.type == socket.SOCK_STREAM and connection.family in _FAMILIES
                if is_tcp and connection.getsockname()[1] == port:
                    address, client_port = connection.getpeername()[:2]  # raises for the listening socket
                    yield (address, client_port), connection


def _open_descriptors() -> Iterable[int]:
    """Return the descriptors of this process. All numbers that it may have if none is left to read the folder."""
    try:
        return map(int, os.listdir(_DESCRIPTOR_FOLDER))  # noqa: PTH208 - names are what is wanted, of up to thousands
    except OSError as error:
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) if error.errno in OUT_OF_FILES else ()


@contextlib.contextmanager
def _borrow(number: int) -> Iterator[socket.socket]:
    """Yield a duplicate of a socket, or itself if no descriptor is left: else no connection could ever be closed.

    Without a duplicate, its owner may close it meanwhile, and its number stand for a newer connection.
    """
    try:
        borrowed = socket.socket(fileno=os.dup(number))
    except OSError:
        borrowed = socket.socket(fileno=number)
        try:
            yield borrowed
        finally:
            borrowed.detach()
    else:
        with borrowed:
            yield borrowed


def clients(port: int) -> frozenset[Address]:
    """Return the address of each client that is connected to a port."""
    return frozenset(client for client, _ in connections(port))


def count_descriptors() -> int:
    """Return how many file descriptors this process has, at least one for each connection. 0 if unknown.

    Linux reports the number from 6.2 on. Listing the folder takes the GIL for each entry, and delays requests.
    """
    try:
        folder = os.open(_DESCRIPTOR_FOLDER, os.O_RDONLY)
        try:
            size = os.fstat(folder).st_size if sys.platform == "linux" else 0
            return size or len(os.listdir(folder))  # noqa: PTH208 - only how many there are
        finally:
            os.close(folder)
    except OSError as error:
        return sys.maxsize if error.errno in OUT_OF_FILES else 0


def idle_seconds(connection: socket.socket) -> float:
    """Return for how long nothing was sent or received. 0 if the system doesn't report it (other than Linux)."""
    _, sent, received, _ = _tcp_info(connection)
    return min(sent, received) / 1000


def is_full(connection: socket.socket) -> bool:
    """Return whether the client must read before more is sent. False if the system doesn't report it."""
    if not sys.platform.startswith("linux"):
        return False
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    return not poll.poll(0)


def bytes_acknowledged(connection: socket.socket, sent: int) -> int:
    """Return how many bytes the client acknowledged. `sent`, how many the system took, if it doesn't report that."""
    return _tcp_info(connection)[3] if sys.platform.startswith("linux") else sent


def backlog_size(listening: socket.socket) -> int:
    """Return how many connections wait to be accepted. 0 if the system doesn't report it (other than Linux)."""
    return _tcp_info(listening)[0]


def _tcp_info(connection: socket.socket) -> tuple[int, int, int, int]:
    if not sys.platform.startswith("linux"):
        return 0, 0, 0, 0
    return _TCP_INFO.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
