"""The request log: requests are recorded on the request path, and a thread notifies the observers of them.

Fields are stored flat: thousands of live objects fill the processor's cache and slow the garbage collector.
"""

from __future__ import annotations

import threading
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from plughost._api.bounded import NoThread, TookTooLong, bounded
from plughost._api.events import RequestKind, RequestRecord, Timings, code_of
from plughost._runtime.access_log import AccessLog
from plughost._servers.base import RECEIVED
from plughost.http._environ import SITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import falcon
    import structlog

    from plughost._api.declarations import Observer
    from plughost._api.events import Event, Events
    from plughost.http._request import Request

_LONGEST_TARGET: Final = 2000
_BATCH: Final = 2048  # pending requests that are passed on early; fewer would switch threads too often
_MAX_PENDING: Final = 8 * _BATCH
_NOTIFY_INTERVAL: Final = 1.0  # seconds

# Keys of the environ, if an observer asks for timings: when the resource was called, and the `Timings`.
_RESOURCE_STARTED: Final = "plughost.resource_begun"
_TIMINGS: Final = "plughost.timings"

_MOUNTED: Final = RequestRecord._fields.index("plugin")  # the mounted route, in place of plugin and route
_FIELD_COUNT: Final = len(RequestRecord._fields) - 1
_TIMES_FIELD_COUNT: Final = 4  # seconds, method, status, mounted
_BATCH_TIMES: Final = _BATCH * _TIMES_FIELD_COUNT
_BATCH_REQUESTS: Final = _BATCH * _FIELD_COUNT
_MAX_TIMES: Final = _MAX_PENDING * _TIMES_FIELD_COUNT
_MAX_REQUESTS: Final = _MAX_PENDING * _FIELD_COUNT

_new_record: Final = partial(tuple.__new__, RequestRecord)  # a third of the time of `_make`


class RequestLog:
    """Records the requests of a host for the observers of its plugins.

    It is a Falcon middleware, mounted only if a plugin observes. A thread notifies the observers every second, or after
    2,048 requests, so that no request waits for an observer. While 16,384 requests are pending, further ones are
    dropped. An observer that does not return in time gets nothing until it does, and the others go on.

    Attributes:
        access: The middleware that writes the access log, if the settings enable it.
        timer: The innermost middleware, if an observer asks for timings.
    """

    def __init__(
        self, logger: structlog.stdlib.BoundLogger, events: Events, join: Callable[[], None] = lambda: None
    ) -> None:
        """Record everything until the first observers are set. The threads of the logs call `join` first."""
        self._join = join
        self.access: AccessLog = AccessLog(logger, join)
        self.timer: Timer = Timer(events)
        self._logger = logger
        self._times: list[Any] = []
        self._requests: list[Any] = []
        self._times_limit, self._requests_limit = _MAX_TIMES, _MAX_REQUESTS
        self._observers: Mapping[str, tuple[Observer, ...]] = {}
        self._timeout = inf
        self._busy: dict[int, Observer] = {}  # by id, those of which a call has not returned
        self._drain_lock = threading.Lock()
        self._wake = threading.Event()
        self._awaited: list[threading.Event] = []  # by callers of `catch_up`
        self._thread: threading.Thread | None = None

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Record a request, with its time until the response begins."""
        arrived = req.arrived
        seconds = perf_counter() - arrived
        times, requests = self._times, self._requests
        if len(times) < self._times_limit:
            times += (seconds, req.method, resp.status, req.mounted)
            if not len(times) % _BATCH_TIMES:
                self._wake.set()
        if len(requests) < self._requests_limit:
            environ = req.env
            requests += (
                arrived,
                seconds,
                req.method,
                (environ.get("REQUEST_URI") or req.relative_uri)[:_LONGEST_TARGET],
                resp.status,
                req.mounted,
                environ[SITE].name,
                environ["SERVER_PROTOCOL"],
                req.request_id,
                environ.get(_TIMINGS),
            )
            if not len(requests) % _BATCH_REQUESTS:
                self._wake.set()

    def record_all(self) -> None:
        """Record everything, until the next observers are set."""
        self._times_limit, self._requests_limit = _MAX_TIMES, _MAX_REQUESTS

    def start(self) -> None:
        """Start the thread that notifies observers, before the first ones are set, unless it runs.

        Raises:
            RuntimeError: The system allows no further thread.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_notifier, name="observers", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                raise

    def set_observers(self, observers: Mapping[str, tuple[Observer, ...]], timeout: float = inf) -> None:
        """Notify the current observers a last time, then replace them, by plugin. Without any, the thread ends.

        Each call of an observer may take `timeout` seconds.
        """
        if self._observers:
            self.catch_up()
        self._observers, self._timeout = observers, timeout
        following = [observer for _, observer in self._named_observers()]
        self.timer.enable(any(each.timings for each in following))
        self._times_limit = _MAX_TIMES if any(each.observe_times for each in following) else 0
        limit = max((each.at_most or _MAX_PENDING for each in following if each.observe), default=0)
        self._requests_limit = min(limit * _FIELD_COUNT, _MAX_REQUESTS)
        if not observers and self._thread is not None:
            thread, self._thread = self._thread, None
            self._wake.set()
            thread.join(_NOTIFY_INTERVAL)

    def catch_up(self) -> None:
        """Have the observers notified of all pending requests. Wait for that up to a second: one of them may hang."""
        if self._thread is not None:
            caught_up = threading.Event()
            self._awaited.append(caught_up)
            self._wake.set()
            caught_up.wait(_NOTIFY_INTERVAL)

    def _notify_times(self) -> None:
        if times := self._drain(self._times, _MAX_TIMES):
            times_by_kind = _by_kind(times)
            for plugin, observer in self._named_observers():
                self._notify(plugin, observer, observer.observe_times, times_by_kind)

    def _notify_requests(self) -> None:
        if requests := self._drain(self._requests, _MAX_REQUESTS):
            records = tuple(map(_record, zip(*[iter(requests)] * _FIELD_COUNT, strict=True)))
            for plugin, observer in self._named_observers():
                self._notify(plugin, observer, observer.observe, records[: observer.at_most])

    def _drain(self, pending: list[Any], limit: int) -> list[Any]:
        """Empty a list and return what it held. What other threads append meanwhile stays."""
        with self._drain_lock:  # a former notifier may still be at an observer
            drained = pending[:]
            del pending[: len(drained)]
        if len(drained) == limit:
            self._logger.warning("observers fall behind: requests were left out", plugins=sorted(self._observers))
        return drained

    def _named_observers(self) -> Iterator[tuple[str, Observer]]:
        return ((plugin, each) for plugin, observers in self._observers.items() for each in observers)

    def _notify(self, plugin: str, observer: Observer, observe: Callable[[Any], None] | None, data: object) -> None:
        key = id(observer)
        if observe is None or key in self._busy:
            return

        def call() -> None:
            self._busy[key] = observer
            try:
                observe(data)
            finally:
                self._busy.pop(key, None)

        try:
            try:
                bounded(call, self._timeout, "observer")
            except NoThread:
                call()  # in this thread, without a limit
        except BaseException as error:
            what = "observer hangs: it gets no requests" if isinstance(error, TookTooLong) else "observer failed"
            self._logger.error(what, plugin=plugin, observer=observer.name, exc_info=error)

    def _run_notifier(self) -> None:
        self._join()
        this = threading.current_thread()
        notified_at = perf_counter()
        while self._thread is this:
            self._wake.wait(max(0.0, notified_at + _NOTIFY_INTERVAL - perf_counter()))
            self._wake.clear()
            awaited = self._awaited[:]
            is_due = perf_counter() - notified_at >= _NOTIFY_INTERVAL or len(self._requests) >= _BATCH_REQUESTS
            self._notify_times()
            if awaited or is_due:  # Flushing requests sooner would record more of them than `at_most`.
                self._notify_requests()
                notified_at = perf_counter()
            del self._awaited[: len(awaited)]
            for each in awaited:
                each.set()


class _ThreadTimes(threading.local):
    """The seconds that the current request of this thread spent in stores."""

    store = 0.0


class Timer:
    """Measures the time of resources and stores, as the innermost Falcon middleware of a site."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._thread = _ThreadTimes()
        self._unsubscribe: Callable[[], None] | None = None

    def enable(self, enabled: bool) -> None:
        """Subscribe to the events of stores, or unsubscribe."""
        if enabled and self._unsubscribe is None:
            self._unsubscribe = self._events.subscribe(self._add, "store")
        elif not enabled and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        self._thread.store = 0.0
        req.env[_RESOURCE_STARTED] = perf_counter()

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        environ = req.env
        started = environ.get(_RESOURCE_STARTED)
        queued = max(0.0, req.arrived - environ.get(RECEIVED, req.arrived))
        if started is None:
            environ[_TIMINGS] = Timings(queued, 0.0, 0.0)
        else:
            environ[_TIMINGS] = Timings(queued, perf_counter() - started, self._thread.store)

    def _add(self, event: Event) -> None:
        self._thread.store += event.fields["seconds"]


def _record(fields: tuple[Any, ...]) -> RequestRecord:
    """Return a record in plain values. Observers keep it, and a mounted route holds the code of its plugin."""
    mounted = fields[_MOUNTED]
    plugin, route = (mounted.plugin, mounted.template) if mounted is not None else ("", "")
    return _new_record((*fields[:_MOUNTED], plugin, route, *fields[_MOUNTED + 1 :]))


def _by_kind(times: list[Any]) -> dict[RequestKind, list[float]]:
    """Return the seconds that requests took, by kind."""
    seconds_by_key: dict[tuple[Any, ...], list[float]] = {}
    for seconds, method, status, mounted in zip(*[iter(times)] * _TIMES_FIELD_COUNT, strict=True):
        key = method, status, mounted
        try:
            seconds_by_key[key].append(seconds)
        except KeyError:
            seconds_by_key[key] = [seconds]
        except TypeError:  # an unhashable status can't be sent either
            seconds_by_key.setdefault((method, None, mounted), []).append(seconds)
    found: dict[RequestKind, list[float]] = {}
    for (method, status, mounted), seconds in seconds_by_key.items():
        plugin, route = (mounted.plugin, mounted.template) if mounted is not None else ("", "")
        found.setdefault(RequestKind(plugin, route, method, code_of(status)), []).extend(seconds)
    return found
