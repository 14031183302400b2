"""Counting in this process: fixed windows, as many as there is room for."""

from __future__ import annotations

import threading
import time
from typing import Final

MOST_CLIENTS: Final = 100_000
"""How many clients one counter remembers, which takes about 25 MB."""


class MemoryWindows:
    """The windows of one counter.

    Not limits' own MemoryStorage, which starts a thread to look at every key each time it is used, keeps as many keys
    as clients think of, and miscounts when two threads meet as a window ends. All windows of a counter are equally
    long, so that the oldest is the first to end: forgetting what has ended takes no search.
    """

    def __init__(self, seconds: int, most: int = MOST_CLIENTS) -> None:
        """Take the length of a window, and how many are kept; past that, the oldest is forgotten before its time."""
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def hit(self, key: str) -> tuple[int, float]:
        """Count one; return how many that makes in this window, and the seconds until it ends."""
        now = time.time()
        with self._lock:
            count, end = self._windows.get(key, (0, 0.0))
            if end <= now:
                self._windows.pop(key, None)  # so that the new window stands last
                count, end = 0, now + self._seconds
                self._make_room(now)
            self._windows[key] = (count + 1, end)
        return count + 1, end - now

    def look(self, key: str) -> tuple[int, float]:
        """Return the same without counting."""
        now = time.time()
        count, end = self._windows.get(key, (0, 0.0))
        return (count, end - now) if end > now else (0, float(self._seconds))

    def _make_room(self, now: float) -> None:
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest][1] > now and len(self._windows) < self._most:
                return
            del self._windows[oldest]
