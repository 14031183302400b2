"""Run the health checks of a host, with a timeout and a short cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from plughost import Health

if TYPE_CHECKING:
    from plughost import Check

TIMED_OUT = "it has not returned in time"


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of a check.

    Attributes:
        name: The check's name.
        health: Its result; down if it raised or timed out.
    """

    name: str
    health: Health

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for the response (CONTRACT 8)."""
        fields: dict[str, Any] = {"name": self.name, "status": "UP" if self.health.up else "DOWN"}
        return {**fields, "data": dict(self.health.data)} if self.health.data else fields


class CachedCheck:
    """A check with a cached result. At most one run is in progress.

    A check that hangs holds a single thread, and only the first callers wait for it.
    """

    def __init__(self, check: Check, *, keep: float) -> None:
        """Prepare to run a check.

        Args:
            check: The check.
            keep: Seconds for which its result is cached.
        """
        self.check = check
        self._keep = keep
        self._changed = threading.Condition()
        self._running = self._hung = False
        self._found = Health(up=False, data={"error": TIMED_OUT})
        self._until = 0.0

    def begin(self) -> None:
        """Start the check, unless it is running or its result is still cached."""
        with self._changed:
            if monotonic() < self._until or self._running:
                return
            self._running = True
        threading.Thread(target=self._run, name=f"health:{self.check.name}", daemon=True).start()

    def result(self, deadline: float) -> Health:
        """Return the check's result.

        Args:
            deadline: When to stop waiting, by the monotonic clock.
        """
        with self._changed:
            timeout = 0.0 if self._hung else max(0.0, deadline - monotonic())
            if self._changed.wait_for(lambda: not self._running, timeout):
                return self._found
            self._hung = True
        return Health(up=False, data={"error": TIMED_OUT})

    def _run(self) -> None:
        try:
            found = self.check.check()
        except Exception as error:  # noqa: BLE001 - a check that raises is down
            found = Health(up=False, data={"error": type(error).__name__})
        with self._changed:
            self._found = found
            self._until = monotonic() + self._keep
            self._running = self._hung = False
            self._changed.notify_all()


class CheckRunner:
    """Runs the checks that a host declares."""

    def __init__(
        self,
        checks: Callable[[], Iterable[Check]],
        *,
        timeout: float,
        keep: float,
        always: Collection[str] = (),
    ) -> None:
        """Take the checks and their limits.

        Args:
            checks: Returns the current checks; a reload changes them.
            timeout: Seconds after which a check counts as down.
            keep: Seconds for which a result is cached.
            always: Names of checks that are never cached.
        """
        self._checks = checks
        self._timeout = timeout
        self._keep = keep
        self._always = frozenset(always)
        self._lock = threading.Lock()
        self._cached: Mapping[str, CachedCheck] = {}

    def run(self, kind: str | None = None) -> list[CheckOutcome]:
        """Run the checks of a kind concurrently.

        Args:
            kind: `live`, `ready` or `started`; None for all.

        Returns:
            The outcomes, sorted by name.
        """
        cached = [cached_check for cached_check in self._current() if kind is None or kind in cached_check.check.kinds]
        for cached_check in cached:
            cached_check.begin()
        deadline = monotonic() + self._timeout
        return [CheckOutcome(cached_check.check.name, cached_check.result(deadline)) for cached_check in cached]

    def _current(self) -> list[CachedCheck]:
        """Return the cached checks that are declared now, sorted by name; unchanged checks keep their cache."""
        with self._lock:
            known = self._cached
            cached = {}
            for check in self._checks():
                cached_check = known.get(check.name)
                if cached_check is None or cached_check.check != check:
                    cached_check = CachedCheck(check, keep=0.0 if check.name in self._always else self._keep)
                cached[check.name] = cached_check
            self._cached = cached
            return [cached[name] for name in sorted(cached)]
