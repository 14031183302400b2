"""Engines: what accepts connections on a listener and calls a site's WSGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plughost._servers.base import Engine, EngineOptions, ListenError, TLSFiles
from plughost._servers.connections import MORE_FILES, require_descriptors
from plughost._servers.threads import MORE_THREADS, require_threads

if TYPE_CHECKING:
    import socket

    from plughost._api.host import Listener
    from plughost._servers.base import Application
    from plughost._servers.dispatcher import Dispatcher

__all__ = ["Engine", "EngineOptions", "ListenError", "TLSFiles", "open_engine", "shortage_for_load"]

_START_THREADS: Final = 16
"""More than an engine starts. Without one of them, granian ends the process, or never returns and holds the GIL."""
_LOAD_THREADS: Final = 4  # hooks run in one each, and some of a plugin's work in others
_LOAD_DESCRIPTORS: Final = 8


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
            f"Cannot serve {listener}: the system does not allow {_START_THREADS} further threads; {MORE_THREADS}."
        ) from error
    if listener.engine == "waitress":
        from plughost._servers.waitress import WaitressEngine  # noqa: PLC0415 - only the engine in use is loaded

        return WaitressEngine(application, listener, listening, options, dispatcher)
    from plughost._servers.granian import GranianEngine  # noqa: PLC0415 - only the engine in use is loaded

    return GranianEngine(application, listener, listening, options, dispatcher)


def shortage_for_load() -> str | None:
    """Return of what the system has too little for a start or a reload, and what to do. None if it has enough.

    Without it, each plugin would seem to have failed, or to be gone: nothing installed can be read.
    """
    try:
        require_descriptors(_LOAD_DESCRIPTORS)
        require_threads(_LOAD_THREADS)
    except OSError as error:
        return f"this process can't open {_LOAD_DESCRIPTORS} further files ({error.strerror}); {MORE_FILES}"
    except RuntimeError:
        return f"the system does not allow this process {_LOAD_THREADS} further threads; {MORE_THREADS}"
    return None
