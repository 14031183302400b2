"""Answered requests: noted on the request path in one step, and told to observers in a thread of their own."""

from __future__ import annotations

import threading
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plughost._api.observed import RequestKind, RequestRecord, Timings, code_of
from plughost._runtime.access_log import AccessLog
from plughost._servers.base import RECEIVED
from plughost.http._request import BEGINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import falcon
    import structlog

    from plughost._api.declarations import Observer
    from plughost._api.events import Event, Events
    from plughost.http._request import Request

_LONGEST_TARGET: Final = 2000
_SOON: Final = 2048  # so many that wait are told without waiting for the second to end; each time, threads switch
_MOST: Final = 8 * _SOON
_SECONDS: Final = 1.0

# In the environ of a request whose time is asked for: when its resource was called, and its `Timings`.
_BEGUN: Final = "plughost.resource_begun"
_TIMINGS: Final = "plughost.timings"

_FIELDS: Final = len(RequestRecord._fields)
_TIMES_FIELDS: Final = 4  # seconds, method, status, mounted
_SOON_TIMES: Final = _SOON * _TIMES_FIELDS
_SOON_REQUESTS: Final = _SOON * _FIELDS
_MOST_TIMES: Final = _MOST * _TIMES_FIELDS
_MOST_REQUESTS: Final = _MOST * _FIELDS

_answered: Final = partial(tuple.__new__, RequestRecord)  # `_make` takes three times as long


class RequestLog:
    """The answered requests of a host, on their way to the observers of its plugins.

    It is a Falcon middleware, mounted only where somebody observes. A second later at most, or after 2,048 requests, a
    thread tells of them: what observers do takes no time of any request. Where they fall behind by 16,384 requests,
    those that follow are left out.

    What is noted stands in lists without structure, field after field: what keeps thousands of objects for a second
    drives everything else out of the processor's cache, and the garbage collector would look through them all.

    Attributes:
        access: The middleware that logs a line for each request, where the settings say so.
        timer: The middleware next to the resource, where an observer asks for timings.
    """

    def __init__(
        self, logger: structlog.stdlib.BoundLogger, events: Events, join: Callable[[], None] = lambda: None
    ) -> None:
        """Begin without observers, and note everything for those to come. Its threads call `join` first."""
        self._join = join
        self.access: AccessLog = AccessLog(logger, join)
        self.timer: Timer = Timer(events)
        self._logger = logger
        self._times: list[Any] = []
        self._requests: list[Any] = []
        self._most_times, self._most_requests = _MOST_TIMES, _MOST_REQUESTS  # how long they may become
        self._observers: Mapping[str, tuple[Observer, ...]] = {}
        self._telling = threading.Lock()
        self._soon = threading.Event()
        self._thread: threading.Thread | None = None

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Note a request, and how long it took until its response began."""
        if resp.stream is not None and BEGINS not in req.env:  # it may fail before its first part
            req.env[BEGINS] = partial(self.process_response, req, resp, resource, req_succeeded)
            return
        arrived = req.arrived
        seconds = perf_counter() - arrived
        times, requests = self._times, self._requests
        if len(times) < self._most_times:
            times += (seconds, req.method, resp.status, req.mounted)
            if not len(times) % _SOON_TIMES:
                self._soon.set()
        if len(requests) < self._most_requests:
            environ = req.env
            requests += (
                arrived,
                seconds,
                req.method,
                (environ.get("REQUEST_URI") or req.relative_uri)[:_LONGEST_TARGET],
                resp.status,
                req.mounted,
                environ["plughost.site"].name,
                environ["SERVER_PROTOCOL"],
                req.request_id,
                environ.get(_TIMINGS),
            )
            if not len(requests) % _SOON_REQUESTS:
                self._soon.set()

    def note_all(self) -> None:
        """Note everything, until it is known what observers want who are about to be handed to."""
        self._most_times, self._most_requests = _MOST_TIMES, _MOST_REQUESTS

    def hand_to(self, observers: Mapping[str, tuple[Observer, ...]]) -> None:
        """Tell others from now on, by plugin; none, and the thread ends. Those so far are told the rest first."""
        if self._observers:
            self.catch_up()
        self._observers = observers
        every = [each for of_plugin in observers.values() for each in of_plugin]
        self.timer.watch(any(each.timings for each in every))
        self._most_times = _MOST_TIMES if any(each.observe_times for each in every) else 0
        most = max((each.at_most or _MOST for each in every if each.observe), default=0)
        self._most_requests = min(most * _FIELDS, _MOST_REQUESTS)
        if observers and self._thread is None:
            self._thread = threading.Thread(target=self._tell_on, name="observers", daemon=True)
            self._thread.start()
        elif not observers and self._thread is not None:
            thread, self._thread = self._thread, None
            self._soon.set()
            thread.join(_SECONDS)

    def catch_up(self) -> None:
        """Tell the observers of every request that was noted so far. Wait a second for one that is busy."""
        if self._telling.acquire(timeout=_SECONDS):
            try:
                self._tell_times()
                self._tell_requests()
            finally:
                self._telling.release()

    def _tell_times(self) -> None:
        if times := self._take(self._times, _MOST_TIMES):
            of_kinds = _by_kind(times)
            for plugin, observer in self._each_observer():
                self._tell(plugin, observer, observer.observe_times, of_kinds)

    def _tell_requests(self) -> None:
        if requests := self._take(self._requests, _MOST_REQUESTS):
            answered = tuple(map(_answered, zip(*[iter(requests)] * _FIELDS, strict=True)))
            for plugin, observer in self._each_observer():
                self._tell(plugin, observer, observer.observe, answered[: observer.at_most])

    def _take(self, noted: list[Any], most: int) -> list[Any]:
        """Empty a list to which others append meanwhile. What they append stays."""
        taken = noted[:]
        del noted[: len(taken)]
        if len(taken) == most:
            self._logger.warning("observers fall behind: requests were left out", plugins=sorted(self._observers))
        return taken

    def _each_observer(self) -> Iterator[tuple[str, Observer]]:
        return ((plugin, each) for plugin, observers in self._observers.items() for each in observers)

    def _tell(self, plugin: str, observer: Observer, observe: Callable[[Any], None] | None, what: object) -> None:
        try:
            if observe is not None:
                observe(what)
        except BaseException as error:
            self._logger.error("observer failed", plugin=plugin, observer=observer.name, exc_info=error)

    def _tell_on(self) -> None:
        self._join()
        this = threading.current_thread()
        told = perf_counter()
        while self._thread is this:
            self._soon.wait(max(0.0, told + _SECONDS - perf_counter()))
            self._soon.clear()
            if perf_counter() - told >= _SECONDS or len(self._requests) >= _SOON_REQUESTS:
                self.catch_up()
                told = perf_counter()
            else:  # not the requests yet: those of which no more are asked for would be noted anew
                with self._telling:
                    self._tell_times()


class _Thread(threading.local):
    """What this thread's request has spent in stores so far."""

    store = 0.0


class Timer:
    """Times what happens between all middleware and the resource: the innermost Falcon middleware of a site."""

    def __init__(self, events: Events) -> None:
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
            environ[_TIMINGS] = Timings(queued, 0.0, 0.0)
        else:
            environ[_TIMINGS] = Timings(queued, perf_counter() - begun, self._thread.store)

    def _add(self, event: Event) -> None:
        self._thread.store += event.fields["seconds"]


def _by_kind(times: list[Any]) -> dict[RequestKind, list[float]]:
    """Return how long requests took, by what they have in common."""
    alike: dict[tuple[Any, ...], list[float]] = {}
    for seconds, method, status, mounted in zip(*[iter(times)] * _TIMES_FIELDS, strict=True):
        common = method, status, mounted
        try:
            alike[common].append(seconds)
        except KeyError:
            alike[common] = [seconds]
        except TypeError:  # a status that can't be a key can't be sent either
            alike.setdefault((method, None, mounted), []).append(seconds)
    found: dict[RequestKind, list[float]] = {}
    for (method, status, mounted), seconds in alike.items():
        plugin, route = (mounted.plugin, mounted.template) if mounted is not None else ("", "")
        found.setdefault(RequestKind(plugin, route, method, code_of(status)), []).extend(seconds)
    return found
