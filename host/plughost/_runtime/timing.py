"""Where the time of a request goes, for observers that ask."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plughost._api.observed import Timings
from plughost._servers.base import RECEIVED

if TYPE_CHECKING:
    from collections.abc import Callable

    import falcon

    from plughost._api.events import Event, Events
    from plughost.http._request import Request

_BEGUN: Final = "plughost.resource_begun"
TIMINGS: Final = "plughost.timings"
"""Key of the environ for the `Timings` of a request."""


class _Thread(threading.local):
    """What this thread's request has spent in stores so far."""

    store = 0.0


class Timer:
    """Times what happens between all middleware and the resource: the innermost Falcon middleware of a site."""

    def __init__(self, events: Events) -> None:
        """Time nothing yet; see `watch`."""
        self._events = events
        self._thread = _Thread()
        self._unsubscribe: Callable[[], None] | None = None

    def watch(self, wanted: bool) -> None:
        """Let stores tell of their operations, or no more."""
        if wanted and self._unsubscribe is None:
            self._unsubscribe = self._events.subscribe(self._add, "store")
        elif not wanted and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Begin."""
        self._thread.store = 0.0
        req.env[_BEGUN] = perf_counter()

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """End."""
        environ = req.env
        begun = environ.get(_BEGUN)
        queued = max(0.0, req.arrived - environ.get(RECEIVED, req.arrived))
        if begun is None:
            environ[TIMINGS] = Timings(queued, 0.0, 0.0)
        else:
            environ[TIMINGS] = Timings(queued, perf_counter() - begun, self._thread.store)

    def _add(self, event: Event) -> None:
        self._thread.store += event.fields["seconds"]
