"""Listening sockets: opened, inherited from systemd or from the process before, and handed on to the next one.

How they are passed is systemd's socket activation (sd_listen_fds(3)): file descriptors from 3 on, counted by
`LISTEN_FDS` and named by `LISTEN_FDNAMES`, meant for the process `LISTEN_PID`. A socket is named after its site and
scheme, such as `main-http`.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from plughost._servers import ListenError
from plughost._servers.connections import drop_new_connections, open_socket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plughost._api.host import Listener

FIRST: Final = 3
"""The first descriptor that is passed (SD_LISTEN_FDS_START)."""

_HANDED: Final = ".handed"  # the end of the name of what the process before had opened itself


class Sockets:
    """The listening sockets of a host."""

    def __init__(self, inherited: Mapping[str, list[socket.socket]] | None = None) -> None:
        self._lent: list[tuple[str, socket.socket]] = []
        self._handed: dict[str, socket.socket] = {}
        self._open: dict[Listener, socket.socket] = {}
        for name, sockets in (inherited or {}).items():
            if name.endswith(_HANDED):
                self._handed[name.removesuffix(_HANDED)] = sockets[0]
            else:
                self._lent += [(name, each) for each in sockets]
        self._shared = bool(self._handed)  # another process of this host has them, too

    def take(self, listener: Listener) -> socket.socket:
        """Return a listening socket, which then belongs to the caller.

        One that systemd lends is known by its name, else by its port. One that the process before had opened is used
        if it is where the settings want the listener now.

        Raises:
            ListenError: The address can't be had.
        """
        name = _name(listener)
        lent = next((each for known, each in self._lent if known == name), None)
        if lent is None:
            own = {f"{site}-{scheme}" for site in ("main", "library", "admin") for scheme in ("http", "https")}
            unnamed = [each for known, each in self._lent if known not in own]
            lent = next((each for each in unnamed if each.getsockname()[1] == listener.port), None)
        if lent is not None:
            taken = _same(lent)
        elif name in self._handed and _is_at(self._handed[name], listener):
            taken = self._handed.pop(name)
        else:
            if name in self._handed:
                self._handed.pop(name).close()
            self._refuse_twice(listener)
            taken = open_socket(listener)
        self._open[listener] = _same(taken)
        # Whether accepting blocks is a property that all processes share which hold the socket, so it is never on:
        # it would stop the one that serves at the moment.
        taken.setblocking(False)
        return taken

    def _refuse_twice(self, listener: Listener) -> None:
        for other in self._open:
            if listener.port and (other.address, other.port) == (listener.address, listener.port):
                raise ListenError(
                    f"Cannot listen on address {listener.address}, port {listener.port} (site {listener.site}, "
                    f"{listener.scheme}): site {other.site} does over {other.scheme}; set another port for one of them."
                )

    def again(self, listener: Listener) -> socket.socket:
        """Return another descriptor of the socket that a listener has, for a second engine on it."""
        return _same(self._open[listener])

    def release(self, listener: Listener) -> None:
        """Hold a listener's socket no longer. It is closed once its engine closes it, unless another process has it."""
        if listener not in self._open:
            return
        with self._open.pop(listener) as released:
            lent = {each.getsockname() for _, each in self._lent}
            if not self._shared and released.getsockname() not in lent:
                drop_new_connections(released)

    def settle(self) -> None:
        """Take note that no other process accepts on these sockets, and close those handed over that nobody took."""
        self._shared = False
        while self._handed:
            self._handed.popitem()[1].close()

    def to_hand_on(self) -> list[tuple[str, int]]:
        """Return the name and the descriptor of each socket that the next process needs."""
        self._shared = True
        lent = {each.getsockname() for _, each in self._lent}
        own = [(_name(listener), each) for listener, each in self._open.items() if each.getsockname() not in lent]
        return [
            *((name, each.fileno()) for name, each in self._lent),
            *((f"{name}{_HANDED}", each.fileno()) for name, each in own),
        ]


def inherit() -> tuple[dict[str, list[socket.socket]], dict[str, int]]:
    """Return the listening sockets and further descriptors that this process was given, by name; no child gets them."""
    pid, count, names = (os.environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    sockets: dict[str, list[socket.socket]] = {}
    others: dict[str, int] = {}
    if pid != str(os.getpid()) or not count.isdecimal():
        return sockets, others
    for descriptor, name in _named(int(count), names):
        os.set_inheritable(descriptor, False)
        taken = _listening(descriptor)
        if taken is None:
            others[name] = descriptor
        else:
            sockets.setdefault(name, []).append(taken)
    return sockets, others


def _named(count: int, names: str) -> Iterator[tuple[int, str]]:
    given = names.split(":")
    for number in range(count):
        yield FIRST + number, given[number] if number < len(given) and given[number] else "unknown"


def _listening(descriptor: int) -> socket.socket | None:
    """Return a descriptor's listening socket. None where it is none."""
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        return None
    if found.family in {socket.AF_INET, socket.AF_INET6} and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return found
    found.detach()
    return None


def _same(opened: socket.socket) -> socket.socket:
    """Return another descriptor of a socket. `dup` would make it blocking."""
    return socket.socket(fileno=os.dup(opened.fileno()))


def _name(listener: Listener) -> str:
    return f"{listener.site}-{listener.scheme}"


def _is_at(opened: socket.socket, listener: Listener) -> bool:
    """Tell whether a socket is where a listener is wanted."""
    address, port = opened.getsockname()[:2]
    if listener.port not in {0, port}:
        return False
    try:
        found = socket.getaddrinfo(listener.address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return bool(found[0][4][0] == address)
