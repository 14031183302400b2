"""Waiting without being in anybody's way: of a thread that takes turns with others, and of a body that is sent."""

from __future__ import annotations

import threading
from _thread import allocate_lock, get_native_id
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final, Self


class _Thread(threading.local):
    """What this thread does for a dispatcher.

    Attributes:
        native_id: What the system calls it.
        waits: Whether it gave its turn away during this job.
        give_way: Gives its turn away, if it has it; None in a thread that takes no turns.
    """

    waits = False
    give_way: Callable[[bool], None] | None = None

    def __init__(self) -> None:
        self.native_id = get_native_id()


this_thread: Final = _Thread()


def about_to_wait(*, long: bool = False) -> None:
    """Give the turn of this thread away, before it waits for a disk, another thread, or code that needs no lock.

    The request doesn't count against the plugin's share of threads then; at most 16 of a plugin do so at once.

    Args:
        long: It takes many milliseconds, so that the turn is given away though nobody waits for it now. The thread may
            run on any processor meanwhile.
    """
    if this_thread.give_way is not None:
        this_thread.give_way(long)


class Pause(bytes):
    """What a response's body yields while it has nothing to send: its engine lets go of it until `ready` is called.

    To whatever doesn't know pauses it is an empty part. A body sends something else before the first one, since an
    engine notices that a client leaves once the response has begun. Each is yielded once.

    Attributes:
        until: When the body goes on at the latest, of `time.monotonic()`.
        ended: Whether the body is to end, since the drain has begun.
    """

    def __new__(cls, seconds: float = inf) -> Self:
        """Have no content."""
        return super().__new__(cls)

    def __init__(self, seconds: float = inf) -> None:
        """Wait for so many seconds at most."""
        self.until = monotonic() + seconds
        self.ended = False
        self._lock = allocate_lock()
        self._ready = False
        self._resume: Callable[[], object] | None = None

    def wait(self, resume: Callable[[], object]) -> None:
        """Have a function called once it goes on, which may be at once, and in any thread. For engines."""
        with self._lock:
            if not self._ready:
                self._resume = resume
                return
        resume()

    def ready(self) -> None:
        """Let the body go on. May be called in any thread, and more than once."""
        with self._lock:
            self._ready = True
            resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def end(self) -> None:
        """Let the body go on to its end."""
        self.ended = True
        self.ready()
