"""One processor for the threads that answer requests.

Only one thread of a process runs Python at a time. Where they take turns on several processors, each turn wakes another
processor and begins with a cold cache, which takes longer than most requests do. So these threads share one processor.
One with a slow request leaves it, as do jobs: what computes for long without the interpreter's lock must not be in the
way of others. An engine's native threads avoid it: there, they would interrupt whoever runs Python.

The main thread is never bound, so its mask says which processors are allowed. Elsewhere than on Linux, nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Processor:
    """The processor that some threads share, or none."""

    def __init__(self, *, shared: bool) -> None:
        """Choose one, if threads are to share one. At random: in containers, processes have the same number."""
        self._number = random.getrandbits(16) if shared and sys.platform == "linux" else None  # nosec B311 - no secret

    def join(self) -> None:
        """Bind this thread to the shared processor."""
        self._bind(lambda allowed, ours: {ours})

    def leave(self, thread: int = 0) -> None:
        """Let a thread run on every processor that the process may use: this one, or that of a native id."""
        self._bind(lambda allowed, ours: allowed, thread)

    def avoid(self) -> None:
        """Keep this thread, and what it starts, off the shared processor, if there is another."""
        self._bind(lambda allowed, ours: allowed - {ours} or allowed)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let this thread, and what it starts, run on every processor during a block."""
        self.leave()
        try:
            yield
        finally:
            self.join()

    def _bind(self, choose: Callable[[set[int], int], set[int]], thread: int = 0) -> None:
        if self._number is not None and sys.platform == "linux":
            with contextlib.suppress(OSError):
                allowed = os.sched_getaffinity(os.getpid())
                ours = sorted(allowed)[self._number % len(allowed)]
                os.sched_setaffinity(thread, choose(allowed, ours))
