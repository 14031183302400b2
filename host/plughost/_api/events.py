"""Events: what happens on a host, for plugins that watch it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
        on_failure: Called with a subscriber and the exception that it raised; a host logs it. Without it, `publish`
            raises the exception.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: tuple[tuple[Subscriber, frozenset[str]], ...] = ()
        self._reporting = threading.local()
        self.on_failure: Callable[[Subscriber, Exception], None] | None = None

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
                except Exception as error:  # noqa: BLE001 - a subscriber is a plugin's code, and may raise anything
                    self._report(subscriber, error)

    def _report(self, subscriber: Subscriber, error: Exception) -> None:
        if self.on_failure is None:
            raise error
        if getattr(self._reporting, "begun", False):  # a subscriber to the log's lines gets this report, too
            return
        self._reporting.begun = True
        try:
            self.on_failure(subscriber, error)
        finally:
            self._reporting.begun = False
