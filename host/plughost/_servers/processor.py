"""One processor for the threads that answer requests.

Only one thread of a process runs Python at a time. Where they take turns on several processors, each turn wakes another
processor and begins with a cold cache, which takes longer than most requests do. So these threads share one processor.
One with a slow request leaves it, as do jobs: what computes for long without the interpreter's lock must not be in the
way of others. An engine's native threads avoid it: there, they would interrupt whoever runs Python.

So do devices, and what waits for them: a database of this machine wakes where its disk interrupts. A create took twice
as long there. So the processor is one of the half that devices have interrupted the least.

The main thread is never bound, so its mask says which processors are allowed. Elsewhere than on Linux, nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path


class Processor:
    """The processor that some threads share, or none: chosen at random, for several hosts would choose the same."""

    def __init__(self, *, shared: bool) -> None:
        self._ours: int | None = None
        if shared and sys.platform == "linux":
            told = ""
            with contextlib.suppress(OSError):
                told = Path("/proc/interrupts").read_text(encoding="ascii", errors="replace")
            self._ours = random.choice(quiet(os.sched_getaffinity(os.getpid()), told))  # noqa: S311 - no secret  # nosec B311

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
        if self._ours is not None and sys.platform == "linux":
            with contextlib.suppress(OSError):
                allowed = os.sched_getaffinity(os.getpid())
                ours = self._ours if self._ours in allowed else min(allowed)
                os.sched_setaffinity(thread, choose(allowed, ours))


def quiet(allowed: Collection[int], told: str) -> list[int]:
    """Return the half of some processors that devices have interrupted the least, as `/proc/interrupts` told.

    Where that is empty, all are alike.
    """
    counts = dict.fromkeys(sorted(allowed), 0)
    heading, *lines = told.splitlines() or [""]
    numbers = [int(name.removeprefix("CPU")) for name in heading.split()]
    for kind, *fields in map(str.split, lines):
        if kind[:-1].isdigit():  # the others are the system's own, such as its timer
            for number, count in zip(numbers, fields, strict=False):
                if number in counts:
                    counts[number] += int(count)
    return sorted(counts, key=counts.__getitem__)[: (len(counts) + 1) // 2] if told else list(counts)
