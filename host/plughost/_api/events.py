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
    """Passes events to subscribers. Without any, it costs next to nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: tuple[tuple[Subscriber, frozenset[str]], ...] = ()

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
            subscriber: Must return quickly and not raise.
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
                subscriber(event)
