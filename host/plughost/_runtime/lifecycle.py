"""The phases of a host, its readiness, and the requests to stop it."""

from __future__ import annotations

import enum
import threading
from time import monotonic
from typing import TYPE_CHECKING

from plughost._runtime.wakeup import StopRequests

if TYPE_CHECKING:
    import structlog


class Phase(enum.StrEnum):
    """The phase of a host. While leaving, it serves everything but is not ready."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


class Lifecycle:
    """The phase of a host, and whether load balancers should send it requests.

    Attributes:
        phase: The current phase. See `enter`.
        drained_at: The `time.monotonic()` at which an operator drained the host. None if not drained.
        handed_over: Whether a successor process serves. This one then stays ready until it ends.
        stop_requests: How often the host was asked to stop. A second request ends `delay_stop`.
    """

    def __init__(self, logger: structlog.stdlib.BoundLogger) -> None:
        self.phase: Phase = Phase.STARTING
        self.drained_at: float | None = None
        self.handed_over: bool = False
        self.stop_requests: StopRequests = StopRequests()
        self._logger = logger
        self._lock = threading.Lock()

    def enter(self, phase: Phase) -> None:
        """Enter a phase, unless the host is in a later one already."""
        order = list(Phase)
        with self._lock:
            self.phase = max(self.phase, phase, key=order.index)

    @property
    def is_serving(self) -> bool:
        return self.phase is Phase.SERVING

    def is_stopping(self) -> bool:
        return self.stop_requests.made or self.phase in {Phase.LEAVING, Phase.DRAINING, Phase.STOPPED}

    @property
    def unready(self) -> str | None:
        if self.handed_over:
            return None
        if self.phase is Phase.LEAVING:
            return "it was asked to stop, and serves on for shutdown_delay first"
        if self.phase is not Phase.SERVING:
            return f"it is {self.phase}"
        return None if self.drained_at is None else "plughost drain took it out of service; --undo puts it back"

    def drain(self, *, undo: bool = False) -> None:
        """Take readiness down, and serve everything, until that is undone or the process ends."""
        if undo:
            self.drained_at = None
        elif self.drained_at is None:
            self.drained_at = monotonic()
        self._logger.info("readiness", ready=self.unready is None, reason=self.unready)

    def delay_stop(self, delay: float) -> None:
        """Take readiness down for these seconds before the stop, and serve everything meanwhile.

        The time since `drain` took it down counts, too. A second request to stop ends the wait.
        """
        if self.phase is Phase.SERVING and delay:
            self.enter(Phase.LEAVING)
            self._logger.info("readiness", ready=False, reason=self.unready)
            remaining = delay if self.drained_at is None else self.drained_at + delay - monotonic()
            self.stop_requests.wait(2, remaining)
