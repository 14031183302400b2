"""Engines: what accepts connections on a listener and calls a site's WSGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plughost._servers.base import Engine, EngineOptions, ListenError, TLSFiles
from plughost._servers.threads import require_threads

if TYPE_CHECKING:
    import socket

    from plughost._api.host import Listener
    from plughost._servers.base import Application
    from plughost._servers.dispatcher import Dispatcher

__all__ = ["Engine", "EngineOptions", "ListenError", "TLSFiles", "open_engine"]

_START_THREADS: Final = 16
"""More than an engine starts. Without one of them, granian ends the process, or never returns and holds the GIL."""


def open_engine(
    application: Application,
    listener: Listener,
    listening: socket.socket,
    options: EngineOptions,
    dispatcher: Dispatcher,
) -> Engine:
    """Serve an application on a listening socket by the engine that the listener names, which owns the socket then.

    Raises:
        ListenError: The certificate can't be used, or the system allows too few further threads.
    """
    try:
        require_threads(_START_THREADS)
    except RuntimeError as error:
        listening.close()
        raise ListenError(
            f"Cannot serve {listener}: the system does not allow {_START_THREADS} further threads; raise TasksMax of "
            "the unit, `ulimit -u`, or the container's limit of processes."
        ) from error
    if listener.engine == "waitress":
        from plughost._servers.waitress import WaitressEngine  # noqa: PLC0415 - only the engine in use is loaded

        return WaitressEngine(application, listener, listening, options, dispatcher)
    from plughost._servers.granian import GranianEngine  # noqa: PLC0415 - only the engine in use is loaded

    return GranianEngine(application, listener, listening, options, dispatcher)
