"""One processor for the threads that answer requests.

Only one thread of a process runs Python at a time. Where they take turns on several processors, each turn wakes another
processor and begins with a cold cache, which takes longer than most requests do. So these threads share one processor.
One with a slow request leaves it, as do jobs: what computes for long without the interpreter's lock must not be in the
way of others.

The main thread is never bound, so its mask says which processors are allowed. Elsewhere than on Linux, nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import sys

if sys.platform == "linux":

    def share(number: int) -> None:
        """Bind this thread to one of the processors that the process may use, chosen by a number."""
        with contextlib.suppress(OSError):
            allowed = sorted(os.sched_getaffinity(os.getpid()))
            os.sched_setaffinity(0, {allowed[number % len(allowed)]})

    def leave(thread: int = 0) -> None:
        """Let a thread run on every processor that the process may use.

        Args:
            thread: The native id of the thread. This one by default.
        """
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, os.sched_getaffinity(os.getpid()))

else:

    def share(number: int) -> None:
        """Do nothing."""

    def leave(thread: int = 0) -> None:
        """Do nothing."""
