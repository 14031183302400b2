"""The time of a host: the machine's, or in tests one that is set."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


class Clock:
    """The machine's time."""

    def now(self) -> datetime:
        """Return the date and time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return time.monotonic()

    def patience(self, seconds: float | None) -> float | None:
        """Return for how long to wait until so many seconds have passed here; None until somebody says so."""
        return seconds


class SetClock(Clock):
    """A time that stands still until it is advanced."""

    def __init__(self, now: datetime) -> None:
        """Begin at a moment, which has a time zone."""
        if now.tzinfo is None:
            message = f"a clock is set to a time with a time zone, and {now.isoformat()} has none; add tzinfo=UTC"
            raise ValueError(message)
        self._began = now.astimezone(UTC)
        self._passed = 0.0

    def now(self) -> datetime:
        """Return the moment that it was set to."""
        return self._began + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Return the seconds that it was advanced."""
        return self._passed

    def patience(self, seconds: float | None) -> float | None:
        """Return None: nothing happens until it is advanced."""
        return None

    def advance(self, seconds: float) -> None:
        """Let some seconds pass."""
        self._passed += seconds
