"""Engines: what accepts connections on a listener and calls a site's WSGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost._servers.base import Engine, EngineOptions, ListenError, TLSFiles

if TYPE_CHECKING:
    from plughost._api.host import Listener
    from plughost._servers.base import Application
    from plughost._servers.dispatcher import Dispatcher

__all__ = ["Engine", "EngineOptions", "ListenError", "TLSFiles", "open_engine"]


def open_engine(
    application: Application,
    listener: Listener,
    options: EngineOptions,
    tls: TLSFiles | None,
    dispatcher: Dispatcher,
) -> Engine:
    """Return the engine that a listener names; it serves once it is started.

    Args:
        application: What is called for each request, by the threads of the dispatcher.
        listener: Where it is reached, and by which engine.
        options: Limits and time-outs.
        tls: The certificate; needed for https, ignored for http.
        dispatcher: The host's.

    Raises:
        ListenError: The engine cannot serve the listener.
    """
    if listener.scheme == "https" and tls is None:
        raise ListenError(f"Cannot serve {listener}: https needs a certificate.")
    if listener.engine == "waitress":
        if listener.scheme == "https":
            raise ListenError(f'Cannot serve {listener}: waitress has no TLS; set engine = "granian" for https.')
        from plughost._servers.waitress import WaitressEngine  # noqa: PLC0415 - only the engine in use is loaded

        return WaitressEngine(application, listener, options, dispatcher)
    from plughost._servers.granian import GranianEngine  # noqa: PLC0415 - only the engine in use is loaded

    return GranianEngine(application, listener, options, tls if listener.scheme == "https" else None, dispatcher)
