"""Answered requests: noted on the request path in one step, and told to observers in a thread of their own."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import falcon
    import structlog

    from plughost.declarations import Observer
    from plughost.http.mounting import Mounted
    from plughost.http.request import Request

_LONGEST_TARGET: Final = 2000
_SOON: Final = 2048  # so many that wait are told without waiting for the second to end; each time, threads switch
_MOST: Final = 8 * _SOON
_SECONDS: Final = 1.0


class AnsweredRequest(NamedTuple):
    """A request that was answered, as observers are told of it.

    Attributes:
        arrived: When it arrived, of `time.perf_counter()`.
        seconds: How long it took until its response began.
        method: Its method, as it was sent.
        target: Its path and query, percent-encoded as they were sent; the first 2,000 characters.
        status: The status as it was set, such as `200 OK`; see `code`.
        mounted: The route or group that it was for; None where there is none. See `plugin` and `route`.
        site: The site.
        protocol: `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
        request_id: What `X-Request-ID` of the response carries.
    """

    arrived: float
    seconds: float
    method: str
    target: str
    status: Any
    mounted: Mounted | None
    site: str
    protocol: str
    request_id: str

    @property
    def plugin(self) -> str:
        """The plugin that it was for; empty where there is none."""
        return self.mounted.plugin if self.mounted is not None else ""

    @property
    def route(self) -> str:
        """The full URI template of its route, `<prefix>/*` below a prefix that has no such route; else empty."""
        return self.mounted.template if self.mounted is not None else ""

    @property
    def code(self) -> int:
        """The status code: 500 for a status that can't be sent, as the engine then answers."""
        import falcon  # noqa: PLC0415 - which not every command needs

        try:
            code: int = falcon.http_status_to_code(self.status)
        except (TypeError, ValueError):
            return 500
        return code


_answered: Final = partial(tuple.__new__, AnsweredRequest)  # `_make` takes three times as long


class AnsweredRequests:
    """The answered requests of a host, on their way to the observers of its plugins.

    It is a Falcon middleware, mounted only where somebody observes. A second later at most, or after 2,048 requests, a
    thread tells of them: what observers do takes no time of any request. Where they fall behind by 16,384 requests,
    the oldest are left out.
    """

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        """Begin without observers."""
        self._logger = logger
        self._noted: deque[tuple[Any, ...]] = deque(maxlen=_MOST)
        self._observers: Mapping[str, tuple[Observer, ...]] = {}
        self._telling = threading.Lock()
        self._soon = threading.Event()
        self._thread: threading.Thread | None = None

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Note a request, and how long it took until its response began."""
        environ = req.env
        noted = self._noted
        arrived = req.arrived
        noted.append(
            (
                arrived,
                perf_counter() - arrived,
                req.method,
                (environ.get("REQUEST_URI") or req.relative_uri)[:_LONGEST_TARGET],
                resp.status,
                req.mounted,
                environ["plughost.site"].name,
                environ["SERVER_PROTOCOL"],
                req.request_id,
            )
        )
        if not len(noted) % _SOON:
            self._soon.set()

    def hand_to(self, observers: Mapping[str, tuple[Observer, ...]]) -> None:
        """Tell others from now on; those so far are told first what happened until now.

        Args:
            observers: By plugin. None of them, and the thread ends.
        """
        self.catch_up()
        self._observers = observers
        if observers and self._thread is None:
            self._thread = threading.Thread(target=self._tell_on, name="observers", daemon=True)
            self._thread.start()
        elif not observers and self._thread is not None:
            thread, self._thread = self._thread, None
            self._soon.set()
            thread.join(_SECONDS)

    def catch_up(self) -> None:
        """Tell the observers of every request that was noted so far; wait a second for one that is busy."""
        if not self._telling.acquire(timeout=_SECONDS):
            return
        try:
            noted = self._noted
            if len(noted) == _MOST:
                self._logger.warning("observers fall behind: requests were left out", plugins=sorted(self._observers))
            batch = tuple(map(_answered, [noted.popleft() for _ in range(len(noted))]))
            if batch:
                for plugin, observers in self._observers.items():
                    self._tell(plugin, observers, batch)
        finally:
            self._telling.release()

    def _tell(self, plugin: str, observers: Iterable[Observer], batch: tuple[AnsweredRequest, ...]) -> None:
        for observer in observers:
            try:
                observer.observe(batch)
            except BaseException as error:
                self._logger.error("observer failed", plugin=plugin, observer=observer.name, exc_info=error)

    def _tell_on(self) -> None:
        this = threading.current_thread()
        while self._thread is this:
            self._soon.wait(_SECONDS)
            self._soon.clear()
            self.catch_up()
