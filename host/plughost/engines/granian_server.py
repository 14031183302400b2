"""granian's embedded server, on a socket of ours."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]  # public there, but without __all__
from granian.server.embed import Server

from plughost.engines.listening import BACKLOG

if TYPE_CHECKING:
    from plughost.engines.base import EngineOptions, TLSFiles

_HEADER_BYTES: Final = 64 * 1024
_HTTP1_BUFFER: Final = 128 * 1024
# Changes levels only: without `incremental`, granian's set-up of the logging would close the handlers of the host.
_QUIET: Final = {"version": 1, "incremental": True, "formatters": {}, "handlers": {}, "loggers": {"_granian": {}}}


def server_settings(options: EngineOptions, tls: TLSFiles | None) -> dict[str, Any]:
    """Return granian's settings for an engine's options."""
    settings: dict[str, Any] = {
        "interface": Interfaces.ASGINL,
        "http": HTTPModes.auto,
        "websockets": False,
        "backlog": BACKLOG,
        "backpressure": options.connection_limit,
        "http1_settings": HTTP1Settings(header_read_timeout=options.idle_timeout * 1000, max_buffer_size=_HTTP1_BUFFER),
        "http2_settings": HTTP2Settings(
            # Milliseconds, and seconds. Pings shed dead peers where idle ones cannot be seen; where they can, pings
            # that come sooner would keep them from looking idle.
            keep_alive_interval=options.idle_timeout * 2000,
            keep_alive_timeout=20,
            max_headers_size=_HEADER_BYTES,
        ),
        "log_enabled": False,
        "log_dictconfig": _QUIET,
    }
    if tls is not None:
        settings |= {
            "ssl_cert": Path(tls.certificate),
            "ssl_key": Path(tls.key),
            "ssl_key_password": tls.password,
            "ssl_protocol_min": SSLProtocols.tls12,
        }
    return settings


class OwnSocketServer(Server):
    """granian's server on a socket that it is given.

    One that it opens itself is bound with SO_REUSEPORT, which lets a second host answer on the port unnoticed, cannot
    be asked for the port that the system chose, and stays open for ever (2.8.7 on Linux).

    Args:
        listening: The socket, listening; it stays the caller's.
        settings: As granian's `Server` takes them.
    """

    def __init__(self, listening: socket.socket, **settings: Any) -> None:
        """Read the certificate, if there is one.

        Raises:
            OSError: It cannot be read, or does not fit its key.
        """
        address, port = listening.getsockname()[:2]
        super().__init__(target="", address=address, port=port, **settings)
        self._listening = listening
        self._descriptor = -1

    def _init_shared_socket(self) -> None:
        self._descriptor = self._listening.dup().detach()  # granian closes it
        arguments: tuple[Any, ...] = (self._descriptor, False, BACKLOG)
        if not sys.platform.startswith(("linux", "freebsd")):  # where granian takes fewer
            arguments = arguments[: 1 if sys.platform == "win32" else 2]
        holder: Any = SocketHolder
        self._shd = holder(*arguments)

    @property
    def alive(self) -> bool:
        """Whether granian's worker runs."""
        workers: list[Any] = self.wrks  # which granian leaves partly untyped
        return bool(workers) and workers[0].is_alive()

    def refuse(self) -> None:
        """Close the port, and leave the connections alone.

        granian only knows how to do both at once. So its descriptor is made to name another socket, one that nobody
        connects to; the port is closed with the last descriptor that named it.
        """
        if os.name == "posix" and os.path.sameopenfile(self._descriptor, self._listening.fileno()):
            with socket.create_server(("127.0.0.1", 0), backlog=0) as nobodys:
                nobodys.setblocking(False)
                os.dup2(nobodys.fileno(), self._descriptor, inheritable=False)
        self._listening.close()
