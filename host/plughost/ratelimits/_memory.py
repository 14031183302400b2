"""Counting in this process: fixed windows, as many as there is room for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

MOST_CLIENTS: Final = 100_000
"""How many clients one counter remembers, which takes about 25 MB."""


class MemoryWindows:
    """The windows of one counter.

    Not limits' own MemoryStorage, which starts a thread to look at every key each time it is used, keeps as many keys
    as clients think of, and miscounts when two threads meet as a window ends. The oldest window is mostly the first to
    end: forgetting what has ended takes no search. The clock is one that nobody can turn back.
    """

    def __init__(self, seconds: int, most: int = MOST_CLIENTS, length: Callable[[int], int] | None = None) -> None:
        """Prepare for windows of a length; past `most` of them, the oldest is forgotten before its time.

        With `length`, each hit begins the window anew, as long as that returns for the number of hits.
        """
        self._seconds = seconds
        self._most = most
        self._length = length
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def hit(self, key: str) -> tuple[int, float]:
        """Count one. Return how many that makes in this window, and the seconds until it ends."""
        now = time.monotonic()
        with self._lock:
            count, end = self._windows.get(key, (0, 0.0))
            if end <= now:
                count = 0
            if count == 0 or self._length is not None:
                self._windows.pop(key, None)  # so that the new window stands last
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
            if self._windows[oldest][1] > now and len(self._windows) < self._most:
                return
            del self._windows[oldest]
