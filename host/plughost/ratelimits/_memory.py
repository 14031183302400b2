"""Counting in this process, in a limited number of windows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

MAX_KEYS: Final = 100_000
"""How many keys one counter remembers, which takes about 25 MB."""


class MemoryWindows:
    """The windows of one counter.

    Not the MemoryStorage of `limits`: each use starts a thread that scans all keys, clients can make any number of
    keys, and it miscounts if two threads meet as a window ends. Here, mostly the oldest window ends first: dropping
    ended ones takes no search. The clock is monotonic.
    """

    def __init__(self, seconds: int, max_keys: int = MAX_KEYS, length: Callable[[int], int] | None = None) -> None:
        """Prepare windows of some seconds. Beyond `max_keys` of them, the oldest is dropped early.

        With `length`, each hit restarts the window; `length` returns its seconds for a number of hits.
        """
        self._seconds = seconds
        self._max_keys = max_keys
        self._length = length
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def hit(self, key: str) -> tuple[int, float]:
        """Count a hit. Return the hits in this window, and the seconds until it ends."""
        now = time.monotonic()
        with self._lock:
            count, end = self._windows.get(key, (0, 0.0))
            if end <= now:
                count = 0
            if count == 0 or self._length is not None:
                self._windows.pop(key, None)  # so that the new window comes last
                end = now + (self._seconds if self._length is None else self._length(count + 1))
                self._make_room(now)
            self._windows[key] = (count + 1, end)
        return count + 1, end - now

    def look(self, key: str) -> tuple[int, float]:
        """Return the same without counting."""
        now = time.monotonic()
        count, end = self._windows.get(key, (0, 0.0))
        return (count, end - now) if end > now else (0, float(self._seconds))

    def _make_room(self, now: float) -> None:
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest][1] > now and len(self._windows) < self._max_keys:
                return
            del self._windows[oldest]
