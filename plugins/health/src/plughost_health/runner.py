"""Run the health checks of a host, with a timeout and a short cache."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from plughost import Health, about_to_wait
from plughost.http import encode
from plughost_health.checks import HOST

if TYPE_CHECKING:
    from plughost import Check, HostView
    from plughost_health.settings import Settings

_NOT_YET: Final = Health(up=False, data={"error": "it has not returned yet"})
_TIMED_OUT: Final = Health(up=False, data={"error": "it has not returned in time"})
_KINDS: Final = (None, "live", "ready", "started")
_MAX_WAITING: Final = 4  # probes of a kind that wait for slow checks: more of them would hold up the liveness probe
_MOMENT_SECONDS: Final = 0.02  # that any probe waits


class CachedCheck:
    """A check with a cached result. At most one run is in progress.

    A check that hangs holds a single thread, and only the first callers wait for it.
    """

    def __init__(self, check: Check, cache_seconds: float, timeout: float) -> None:
        self.check = check
        self._cache_seconds, self._timeout = cache_seconds, timeout
        self._changed = threading.Condition()
        self._running = False
        self._found = _NOT_YET
        self._until = self._late_at = 0.0

    def begin(self) -> None:
        """Start the check, unless it is running or its result is still cached.

        If the system allows no further thread, the caller's runs it.
        """
        with self._changed:
            if monotonic() < self._until or self._running:
                return
            self._late_at = monotonic() + self._timeout
            self._running = True
        try:
            threading.Thread(target=self._run, name=f"health:{self.check.name}", daemon=True).start()
        except RuntimeError:
            about_to_wait(long=True)
            self._run()

    def result(self, deadline: float) -> Health:
        """Return the check's result; its last one if it still runs at the deadline, by the monotonic clock.

        A check that has run for longer than its timeout is down.
        """
        if self._running and monotonic() < self._late_at:
            about_to_wait(long=True)  # or waiting probes would hold up the liveness probe
        with self._changed:
            timeout = max(0.0, min(deadline, self._late_at) - monotonic())
            has_ended = self._changed.wait_for(lambda: not self._running, timeout)
            return self._found if has_ended or monotonic() < self._late_at else _TIMED_OUT

    def _run(self) -> None:
        try:
            found: Any = self.check.check()
            if isinstance(found, Health):
                encode(dict(found.data))
            else:
                found = Health(up=False, data={"error": f"it returned a {type(found).__name__}, and no Health"})
        except BaseException as error:  # noqa: BLE001 - a check that raises is down, also by sys.exit
            found = Health(up=False, data={"error": type(error).__name__})
        with self._changed:
            self._found = found
            self._until = monotonic() + self._cache_seconds
            self._running = False
            self._changed.notify_all()


class CheckRunner:
    """Runs the checks that a host's plugins declare."""

    def __init__(self, host: HostView, settings: Settings) -> None:
        self._host = host
        self._settings = settings
        self._lock = threading.Lock()
        self._patient = {kind: threading.Semaphore(_MAX_WAITING) for kind in _KINDS}
        self._cached: dict[str, CachedCheck] = {}

    def run(self, kind: str | None) -> dict[str, Health]:
        """Run the checks of a kind concurrently.

        At most four callers of a kind wait for slow checks. Others get their last results, and down for a check that
        has none.

        Args:
            kind: `live`, `ready` or `started`; None for all.

        Returns:
            The results by the checks' names, sorted.
        """
        chosen = [each for each in self._current() if kind is None or kind in each.check.kinds]
        for each in chosen:
            each.begin()
        is_patient = self._patient[kind].acquire(blocking=False)
        try:
            deadline = monotonic() + (self._settings.timeout if is_patient else _MOMENT_SECONDS)
            return {each.check.name: each.result(deadline) for each in chosen}
        finally:
            if is_patient:
                self._patient[kind].release()

    def _current(self) -> list[CachedCheck]:
        """Return the checks that are declared now, sorted by name; unchanged ones keep their cache."""
        with self._lock:
            known, self._cached = self._cached, {}
            for check in sorted(self._host.checks, key=lambda check: check.name):
                cached = known.get(check.name)
                if cached is None or cached.check != check:
                    cache_seconds = 0.0 if check.name == HOST else self._settings.cache
                    cached = CachedCheck(check, cache_seconds, self._settings.timeout)
                self._cached[check.name] = cached
            return list(self._cached.values())
