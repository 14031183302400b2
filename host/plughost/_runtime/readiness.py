"""Where a host is in its life, and whether load balancers should send it requests."""

from __future__ import annotations

import enum
from time import monotonic


class Phase(enum.StrEnum):
    """Where a host is in its life. While leaving, it serves everything, and is not ready."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


class Readiness:
    """Whether a host is ready: while it serves, unless it was drained by hand."""

    def __init__(self) -> None:
        """Be ready."""
        self._drained_at: float | None = None

    def drain(self, *, undo: bool = False) -> None:
        """Let it be down by hand, or no more."""
        if undo:
            self._drained_at = None
        elif self._drained_at is None:
            self._drained_at = monotonic()

    def reason(self, phase: Phase) -> str | None:
        """Return why the host is not ready. None where it is."""
        if phase is Phase.LEAVING:
            return "it was asked to stop, and serves on for shutdown_delay first"
        if phase is not Phase.SERVING:
            return f"it is {phase}"
        return None if self._drained_at is None else "plughost drain took it out of service; --undo puts it back"

    def left_of(self, delay: float) -> float:
        """Return how much of a delay is left. The seconds since it was drained by hand count."""
        return delay if self._drained_at is None else self._drained_at + delay - monotonic()
