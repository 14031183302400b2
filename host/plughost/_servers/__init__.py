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
    """Return the engine that a listener names, with its certificate for https; it serves once it is started."""
    if listener.engine == "waitress":
        from plughost._servers.waitress import WaitressEngine  # noqa: PLC0415 - only the engine in use is loaded

        return WaitressEngine(application, listener, options, dispatcher)
    from plughost._servers.granian import GranianEngine  # noqa: PLC0415 - only the engine in use is loaded

    return GranianEngine(application, listener, options, tls, dispatcher)
