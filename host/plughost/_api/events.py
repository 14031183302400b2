"""What happens on a host, for plugins that watch it: events, and records of answered requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        name: What happened, such as `login` or `reload`.
        plugin: The plugin that emits it. None for the host.
        fields: Details, in plain values. Never secrets.
    """

    name: str
    plugin: str | None
    fields: Mapping[str, Any]


Subscriber = Callable[[Event], None]


class Events:
    """Passes events to subscribers. Without any, it costs next to nothing.

    Attributes:
        on_failure: Called with a subscriber and the exception that it raised. A host logs it. Without it, `publish`
            raises the exception.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: tuple[tuple[Subscriber, frozenset[str]], ...] = ()
        self._reporting = threading.local()
        self.on_failure: Callable[[Subscriber, BaseException], None] | None = None

    @property
    def watched(self) -> bool:
        """Whether there are subscribers. Check it before you compute costly details."""
        return bool(self._subscribers)

    def watches(self, name: str) -> bool:
        """Return whether anybody subscribes to events of a name."""
        for _, names in self._subscribers:  # noqa: SIM110 - a generator takes longer, and stores ask for each operation
            if not names or name in names:
                return True
        return False

    def subscribe(self, subscriber: Subscriber, *names: str) -> Callable[[], None]:
        """Call a function with each event from now on, in the thread that emits it.

        Args:
            subscriber: Must return quickly. If it raises, the host logs that, and whoever emitted the event goes on.
            *names: The names of the events that it gets. All by default, which slows each store operation on the host.

        Returns:
            A function that ends the subscription.
        """
        subscription = (subscriber, frozenset(names))
        with self._lock:
            self._subscribers = (*self._subscribers, subscription)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(each for each in self._subscribers if each is not subscription)

        return unsubscribe

    def emit(self, name: str, plugin: str | None = None, **fields: Any) -> None:
        """Emit an event of a plugin, or of the host. Its fields are details, in plain values."""
        if self.watches(name):
            self.publish(Event(name, plugin, fields))

    def publish(self, event: Event) -> None:
        """Emit an existing event."""
        for subscriber, names in self._subscribers:
            if not names or event.name in names:
                try:
                    subscriber(event)
                except BaseException as error:  # noqa: BLE001 - a subscriber is a plugin's code: it may call sys.exit
                    self._report(subscriber, error)

    def _report(self, subscriber: Subscriber, error: BaseException) -> None:
        if self.on_failure is None:
            raise error
        if getattr(self._reporting, "begun", False):  # a subscriber to the log's lines gets this report, too
            return
        self._reporting.begun = True
        try:
            self.on_failure(subscriber, error)
        finally:
            self._reporting.begun = False


class Timings(NamedTuple):
    """How a request's time was spent, in seconds. The rest is middleware, and encoding the response.

    Attributes:
        queued: How long the complete request waited for a thread. Not part of `RequestRecord.seconds`.
        resource: How long the resource took. 0 if none was called.
        store: How much of that was spent in store operations, including their waits.
    """

    queued: float
    resource: float
    store: float


class RequestRecord(NamedTuple):
    """An answered request, as observers receive it.

    Attributes:
        arrived: When it arrived, by `time.perf_counter()`.
        seconds: How long it took until its response began.
        method: Its method, as sent.
        target: Its path and query, percent-encoded as sent. The first 2,000 characters.
        status: The status as it was set, such as `200 OK`. See `code`.
        plugin: Its plugin. Empty if there is none.
        route: The full URI template of its route, `<prefix>/*` below a prefix without such a route, else empty.
        site: The site.
        protocol: `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
        request_id: The `X-Request-ID` of the response.
        timings: How its time was spent. None unless an observer on the host sets `Observer.timings`.
    """

    arrived: float
    seconds: float
    method: str
    target: str
    status: Any
    plugin: str
    route: str
    site: str
    protocol: str
    request_id: str
    timings: Timings | None = None

    @property
    def code(self) -> int:
        """The status code. 500 for an invalid status, since the engine then sends 500."""
        return code_of(self.status)


class RequestKind(NamedTuple):
    """The key by which requests are counted together.

    Attributes:
        plugin: Their plugin. Empty if there is none.
        route: The full URI template of their route, as in `RequestRecord`.
        method: Their method, as sent: clients can invent any.
        code: The status code.
    """

    plugin: str
    route: str
    method: str
    code: int


def code_of(status: Any) -> int:
    """Return the code of a Falcon status. 500 for an invalid one."""
    import falcon  # noqa: PLC0415 - not every command needs it

    try:
        code: int = falcon.http_status_to_code(status)
    except (TypeError, ValueError):
        return 500
    return code
