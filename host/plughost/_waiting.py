"""Waiting without blocking others: a thread yields its turn, a streamed body pauses."""

from __future__ import annotations

import threading
from _thread import allocate_lock, get_native_id
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final, Self


class _Thread(threading.local):
    """A dispatcher's state for the current thread.

    Attributes:
        native_id: The operating system's thread id.
        has_yielded: Whether the thread yielded its turn during this job.
        yield_turn: Yields the turn if the thread has it. None in a thread that takes no turns.
    """

    has_yielded = False
    yield_turn: Callable[[bool], None] | None = None

    def __init__(self) -> None:
        self.native_id = get_native_id()


this_thread: Final = _Thread()


def about_to_wait(*, long: bool = False) -> None:
    """Yield this thread's turn before it waits for a disk or another thread, or runs code that releases the GIL.

    Meanwhile the request doesn't count against the plugin's share of threads; at most 16 of a plugin do so at once.

    Args:
        long: The wait takes many milliseconds: yield the turn even if no thread waits for it now. Meanwhile the thread
            may run on any processor.
    """
    if this_thread.yield_turn is not None:
        this_thread.yield_turn(long)


class Pause(bytes):
    """An empty part that a response's body yields to be suspended by its engine until `ready` is called.

    Code that doesn't know pauses sees an empty part. Send other content before the first pause: only once the response
    has begun, an engine notices that a client leaves. Yield each pause once.

    Attributes:
        until: When the body resumes at the latest, by `time.monotonic()`.
        ended: Whether the body must end because the drain has begun.
    """

    def __new__(cls, seconds: float = inf) -> Self:
        """Create an empty part."""
        return super().__new__(cls)

    def __init__(self, seconds: float = inf) -> None:
        """Pause for at most this many seconds."""
        self.until = monotonic() + seconds
        self.ended = False
        self._lock = allocate_lock()
        self._ready = False
        self._resume: Callable[[], object] | None = None

    def wait(self, resume: Callable[[], object]) -> None:
        """Call a function when the body may resume, perhaps at once, in any thread. For engines."""
        with self._lock:
            if not self._ready:
                self._resume = resume
                return
        resume()

    def ready(self) -> None:
        """Resume the body. May be called from any thread, and more than once."""
        with self._lock:
            self._ready = True
            resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def end(self) -> None:
        """Resume the body so that it ends."""
        self.ended = True
        self.ready()
