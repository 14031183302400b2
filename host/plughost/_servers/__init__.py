"""Engines: what accepts connections on a listener and calls a site's WSGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost._servers.base import Engine, EngineOptions, ListenError, TLSFiles

if TYPE_CHECKING:
    import socket

    from plughost._api.host import Listener
    from plughost._servers.base import Application
    from plughost._servers.dispatcher import Dispatcher

__all__ = ["Engine", "EngineOptions", "ListenError", "TLSFiles", "open_engine"]


def open_engine(
    application: Application,
    listener: Listener,
    listening: socket.socket,
    options: EngineOptions,
    dispatcher: Dispatcher,
) -> Engine:
    """Serve an application on a listening socket by the engine that the listener names, which owns the socket then.

    Raises:
        ListenError: The certificate can't be used.
    """
    if listener.engine == "waitress":
        from plughost._servers.waitress import WaitressEngine  # noqa: PLC0415 - only the engine in use is loaded

        return WaitressEngine(application, listener, listening, options, dispatcher)
    from plughost._servers.granian import GranianEngine  # noqa: PLC0415 - only the engine in use is loaded

    return GranianEngine(application, listener, listening, options, dispatcher)
