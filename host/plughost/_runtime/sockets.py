"""Listening sockets: opened, or inherited from systemd or from the predecessor; the successor inherits them.

systemd passes file descriptors from 3 on, counted by `LISTEN_FDS` and named by `LISTEN_FDNAMES`, to the process
`LISTEN_PID` (sd_listen_fds(3)). The predecessor passes names and numbers as JSON. A socket's name is its site and
scheme, such as `main-http`.
"""

from __future__ import annotations

import json
import os
import socket
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

from plughost._servers import ListenError
from plughost._servers.connections import drop_new_connections, open_socket
from plughost.http._request import is_loopback

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from plughost._api.host import Listener

HANDED_OVER: Final = "HANDED_OVER_BY_PLUGHOST"
"""The environment variable with the predecessor's descriptors. It is no setting, so `PLUGHOST` comes last."""

_FIRST: Final = 3  # descriptor from systemd (SD_LISTEN_FDS_START)
_SUCCESSION_SUFFIX: Final = ".handed"  # of the names of sockets that the predecessor opened itself


class Sockets:
    """The listening sockets of a host."""

    def __init__(self, inherited: Iterable[tuple[str, socket.socket]] = ()) -> None:
        self._from_systemd: list[tuple[str, socket.socket]] = []
        self._inherited: dict[str, socket.socket] = {}
        self._open: dict[Listener, socket.socket] = {}
        for name, each in inherited:
            if name.endswith(_SUCCESSION_SUFFIX):
                self._inherited[name.removesuffix(_SUCCESSION_SUFFIX)] = each
            else:
                self._from_systemd.append((name, each))
        self._is_shared = bool(self._inherited)  # another process of this host holds them, too

    def bind(self, listener: Listener) -> None:
        """Get the listening socket of a listener, if it has none yet.

        A socket from systemd is found by its name, or else by its port. A socket that the predecessor opened is used if
        it still has the address of the settings.

        Raises:
            ListenError: The address can't be bound, or systemd's is public and that of the settings is not.
        """
        if listener in self._open:
            return
        name = _name(listener)
        from_systemd = next((each for socket_name, each in self._from_systemd if socket_name == name), None)
        if from_systemd is None:
            own_names = {f"{site}-{scheme}" for site in ("main", "library", "admin") for scheme in ("http", "https")}
            unnamed = [each for socket_name, each in self._from_systemd if socket_name not in own_names]
            from_systemd = next((each for each in unnamed if each.getsockname()[1] == listener.port), None)
        if from_systemd is not None:
            address = from_systemd.getsockname()[0]
            if is_loopback(listener.address) and not is_loopback(address):
                raise ListenError(
                    f"The socket from systemd for {name} can be reached from elsewhere ({address}), but the settings "
                    f'allow only this machine ({listener.address}); set sites.{listener.site}.address = "{address}".'
                )
            self._open[listener] = _duplicate(from_systemd)
        elif name in self._inherited and _is_bound_to(self._inherited[name], listener):
            self._open[listener] = self._inherited.pop(name)
        else:
            self._refuse_duplicate(listener)
            self._open[listener] = open_socket(listener)

    def _refuse_duplicate(self, listener: Listener) -> None:
        for other in self._open:
            if listener.port and (other.address, other.port) == (listener.address, listener.port):
                raise ListenError(
                    f"Cannot listen on address {listener.address}, port {listener.port} (site {listener.site}, "
                    f"{listener.scheme}): site {other.site} does over {other.scheme}; set another port for one of them."
                )

    def duplicate(self, listener: Listener) -> socket.socket:
        """Return another descriptor of a listener's socket, for an engine, which closes it."""
        duplicate = _duplicate(self._open[listener])
        # All processes that hold the socket share this flag. Blocking would stop the one that serves now.
        duplicate.setblocking(False)
        return duplicate

    def release(self, listener: Listener) -> None:
        """Close this object's descriptor of a listener's socket. Its engine and other processes may have more."""
        if listener not in self._open:
            return
        with self._open.pop(listener) as released:
            from_systemd = {each.getsockname() for _, each in self._from_systemd}
            if not self._is_shared and released.getsockname() not in from_systemd:
                drop_new_connections(released)

    def release_unused(self, used: Collection[Listener]) -> None:
        for listener in [each for each in self._open if each not in used]:
            self.release(listener)

    def take_ownership(self) -> None:
        """Mark the sockets as this process's alone, and close inherited ones that no listener took."""
        self._is_shared = False
        while self._inherited:
            self._inherited.popitem()[1].close()

    def unused(self) -> list[str]:
        """Return the name and address of each socket from systemd that no listener uses."""
        used = {each.getsockname() for each in self._open.values()}
        addresses = [(name, each.getsockname()) for name, each in self._from_systemd]
        return [f"{name} ({address[0]}:{address[1]})" for name, address in addresses if address not in used]

    def inheritable(self) -> list[tuple[str, int]]:
        """Return the name and the descriptor of each socket that the successor needs."""
        self._is_shared = True
        from_systemd = {each.getsockname() for _, each in self._from_systemd}
        own = [(_name(key), each) for key, each in self._open.items() if each.getsockname() not in from_systemd]
        return [
            *((name, each.fileno()) for name, each in self._from_systemd),
            *((f"{name}{_SUCCESSION_SUFFIX}", each.fileno()) for name, each in own),
        ]


def inherit() -> tuple[list[tuple[str, socket.socket]], dict[str, int]]:
    """Return the inherited listening sockets and other descriptors, with names. Child processes do not inherit them."""
    pid, count, names = (os.environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    descriptors: list[tuple[str, int]] = json.loads(os.environ.pop(HANDED_OVER, "[]"))
    if pid == str(os.getpid()) and count.isdecimal():
        descriptors += zip(chain(names.split(":"), repeat("")), range(_FIRST, _FIRST + int(count)), strict=False)
    sockets: list[tuple[str, socket.socket]] = []
    others: dict[str, int] = {}
    for given, descriptor in descriptors:
        name = given or "unknown"
        os.set_inheritable(descriptor, False)
        taken = _listening_socket(descriptor)
        if taken is None:
            others[name] = descriptor
        else:
            sockets.append((name, taken))
    return sockets, others


def _listening_socket(descriptor: int) -> socket.socket | None:
    """Return the listening socket of a descriptor, or None if it is something else."""
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        return None
    if found.family in {socket.AF_INET, socket.AF_INET6} and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return found
    found.detach()
    return None


def _duplicate(opened: socket.socket) -> socket.socket:
    """Return another descriptor of a socket. `socket.dup` would make it blocking."""
    return socket.socket(fileno=os.dup(opened.fileno()))


def _name(listener: Listener) -> str:
    return f"{listener.site}-{listener.scheme}"


def _is_bound_to(opened: socket.socket, listener: Listener) -> bool:
    address, port = opened.getsockname()[:2]
    if listener.port not in {0, port}:
        return False
    try:
        found = socket.getaddrinfo(listener.address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return bool(found[0][4][0] == address)
