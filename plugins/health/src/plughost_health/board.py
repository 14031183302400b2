"""The board: every check of a host, run within bounds, and told again for a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from plughost import Health

if TYPE_CHECKING:
    from plughost import Check

HUNG = "it has not returned in time"


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found.

    Attributes:
        name: The check's name.
        health: What it returned; down where it raised or did not return.
    """

    name: str
    health: Health

    def as_plain(self) -> dict[str, Any]:
        """Return it as the answer has it (CONTRACT 8)."""
        plain: dict[str, Any] = {"name": self.name, "status": "UP" if self.health.up else "DOWN"}
        return {**plain, "data": dict(self.health.data)} if self.health.data else plain


class Probe:
    """One check: run at most once at a time, and no more often than its result is kept.

    A check that hangs holds one thread, whoever asks and however often; only those who ask first wait for it.
    """

    def __init__(self, check: Check, *, keep: float) -> None:
        """Prepare to run a check.

        Args:
            check: The check.
            keep: Seconds for which its result is told again.
        """
        self.check = check
        self._keep = keep
        self._changed = threading.Condition()
        self._running = self._hung = False
        self._found = Health(up=False, data={"error": HUNG})
        self._until = 0.0

    def begin(self) -> None:
        """Run the check, unless it is running or what it found is still good."""
        with self._changed:
            if monotonic() < self._until or self._running:
                return
            self._running = True
        threading.Thread(target=self._run, name=f"health:{self.check.name}", daemon=True).start()

    def result(self, deadline: float) -> Health:
        """Return what the check found.

        Args:
            deadline: When to wait no longer, by the monotonic clock.
        """
        with self._changed:
            patience = 0.0 if self._hung else max(0.0, deadline - monotonic())
            if self._changed.wait_for(lambda: not self._running, patience):
                return self._found
            self._hung = True
        return Health(up=False, data={"error": HUNG})

    def _run(self) -> None:
        try:
            found = self.check.check()
        except Exception as error:  # noqa: BLE001 - raising is how a check may say that it is down
            found = Health(up=False, data={"error": type(error).__name__})
        with self._changed:
            self._found = found
            self._until = monotonic() + self._keep
            self._running = self._hung = False
            self._changed.notify_all()


class Board:
    """The checks of a host, as they are declared now."""

    def __init__(
        self,
        checks: Callable[[], Iterable[Check]],
        *,
        timeout: float,
        keep: float,
        always: Collection[str] = (),
    ) -> None:
        """Watch checks.

        Args:
            checks: Returns them; plugins come and go.
            timeout: Seconds after which a check counts as down.
            keep: Seconds for which a result is told again.
            always: Names of checks that are run for each look.
        """
        self._checks = checks
        self._timeout = timeout
        self._keep = keep
        self._always = frozenset(always)
        self._lock = threading.Lock()
        self._probes: Mapping[str, Probe] = {}

    def look(self, kind: str | None = None) -> list[Found]:
        """Run the checks of a kind, side by side.

        Args:
            kind: `live`, `ready` or `started`; None for all.

        Returns:
            What they found, sorted by name.
        """
        probes = [probe for probe in self._current() if kind is None or kind in probe.check.kinds]
        for probe in probes:
            probe.begin()
        deadline = monotonic() + self._timeout
        return [Found(probe.check.name, probe.result(deadline)) for probe in probes]

    def _current(self) -> list[Probe]:
        """Return a probe for each check that is declared now, the same one for as long as it is."""
        with self._lock:
            known = self._probes
            probes = {}
            for check in self._checks():
                probe = known.get(check.name)
                if probe is None or probe.check != check:
                    probe = Probe(check, keep=0.0 if check.name in self._always else self._keep)
                probes[check.name] = probe
            self._probes = probes
            return [probes[name] for name in sorted(probes)]
