"""The lines of a host's log, for plugins that watch it."""

from __future__ import annotations

import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from plughost._api.events import Event, Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from plughost._api.events import Subscriber

_MAX_LATE: Final = 10_000  # lines that a subscriber may be late
_END_SECONDS: Final = 1.0


class Lines(Events):
    """Passes lines to subscribers, each of which has a thread: one that hangs delays neither a request nor the host.

    What a subscriber logs itself is passed to none. Otherwise one that fails to pass lines on, and logs that, would
    never be done.
    """

    def __init__(self) -> None:
        super().__init__()
        self._subscriber_threads: set[threading.Thread] = set()

    def subscribe(self, subscriber: Subscriber, *names: str) -> Callable[[], None]:
        """Call a function with each line from now on, in a thread of its own.

        Args:
            subscriber: Called with one line after the other. While it is 10,000 lines late, further ones are left out.
            *names: The names of the events that it gets; lines are named `line`.

        Returns:
            A function that ends the subscription, and waits a second for lines that the subscriber hasn't got yet.

        Raises:
            RuntimeError: The system allows no further thread.
        """
        waiting: SimpleQueue[Event | None] = SimpleQueue()  # a signal handler may log while its thread does

        def add(event: Event) -> None:
            if waiting.qsize() < _MAX_LATE:
                waiting.put(event)

        def end() -> None:
            unsubscribe()
            waiting.put(None)
            if threading.current_thread() is not thread:
                thread.join(_END_SECONDS)

        thread = threading.Thread(target=partial(self._deliver, subscriber, waiting), name="log-lines", daemon=True)
        self._subscriber_threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._subscriber_threads.discard(thread)
            raise
        unsubscribe = super().subscribe(add, *names)
        return end

    def publish(self, event: Event) -> None:
        """Pass a line to the subscribers, unless one of them logs it."""
        if threading.current_thread() not in self._subscriber_threads:
            super().publish(event)

    def _deliver(self, subscriber: Subscriber, waiting: SimpleQueue[Event | None]) -> None:
        try:
            while (event := waiting.get()) is not None:
                try:
                    subscriber(event)
                except BaseException as error:  # noqa: BLE001 - as in `Events`
                    self._report(subscriber, error)
        finally:
            self._subscriber_threads.discard(threading.current_thread())
