"""Vital signs: requests, errors, times and health over the last minutes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plughost import HostView, RequestKind

STEP: Final = 5  # seconds
STEPS: Final = 60
_STEPS_OF_NOW: Final = 2
_STEPS_OF_TIMES: Final = 12
_PER_DOUBLING: Final = 8  # so a time is accurate to 5 %
_HEALTH_SECONDS: Final = 15.0

# What is kept of a step: requests, errors, most in flight, checks that were down, times by size.
_Step = list[Any]
_EMPTY: Final[_Step] = [0, 0, 0, 0, Counter()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A vital sign: its current value for people, and a plot.

    Attributes:
        points: Its values, oldest first, one for each five seconds; 0 also if there is no value.
        link: The console's page with details.
        names: For health, the checks that are down.
    """

    name: str
    value: str
    about: str
    points: Sequence[float]
    link: str
    bad: bool = False
    names: tuple[str, ...] = ()

    def bars(self) -> list[tuple[int, float]]:
        """Return position and height (0 to 100) of each point with a value."""
        top = max(self.points) or 1.0
        return [(place, max(4.0, 100 * each / top)) for place, each in enumerate(self.points) if each]


class Vitals:
    """Counts requests, as an observer."""

    def __init__(self, steps: dict[int, _Step], lock: Lock, seen: dict[str, Any], own: str, host: HostView) -> None:
        """Count into steps of five seconds, by their number. `seen` gets the last results of checks and reloads."""
        self._steps = steps
        self._lock = lock
        self._seen = seen
        self._own = own
        self._host = host

    def observe(self, times: Mapping[RequestKind, Sequence[float]]) -> None:
        """Count requests by duration."""
        others = [(kind, seconds) for kind, seconds in times.items() if kind.plugin != self._own]
        in_flight = self._in_flight()
        with self._lock:
            step = self._step()
            step[2] = max(step[2], in_flight)
            for kind, seconds in others:
                step[0] += len(seconds)
                step[1] += len(seconds) * (kind.code >= 500)
                step[4].update(map(_size, seconds))

    def record_reload(self, report: Mapping[str, Any]) -> None:
        """Record a reload's time and success."""
        self._seen["reload"] = (time(), bool(report.get("swapped")) and not report.get("failed"))

    def signs(self, check: Callable[[], tuple[tuple[str, ...], int]]) -> list[Sign]:
        """Return the vital signs. `check` runs the health checks: it returns which are down, and how many there are."""
        self._host.catch_up()
        down, total = self._health(check)
        with self._lock:
            now = self._step()
            in_flight = self._in_flight()
            now[2] = max(now[2], in_flight)
            now[3] = len(down)
            last = int(time() // STEP)
            steps = [self._steps.get(number, _EMPTY) for number in range(last - STEPS + 1, last + 1)]
            traffic = _traffic(steps)  # it iterates over counters that `observe` changes
        return [
            *traffic,
            Sign(
                name="In flight",
                value=str(in_flight),
                about="being answered now",
                points=[each[2] for each in steps],
                link="/threads",
            ),
            Sign(
                name="Health",
                value="no check" if not total else f"{len(down)} of {total} down" if down else "all up",
                about=", ".join(down) or f"{total} {'check' if total == 1 else 'checks'}, every 15 seconds",
                bad=bool(down),
                points=[each[3] for each in steps],
                link="/health",
                names=down,
            ),
            self._last_reload(last),
        ]

    def _last_reload(self, last: int) -> Sign:
        at, well = self._seen.get("reload", (0.0, True))
        place = int(at // STEP) - (last - STEPS + 1)
        ago = _ago(max(0.0, time() - at)) if at else "none yet"
        serves = f"generation {self._host.generation} serves"
        return Sign(
            name="Last reload",
            value=ago if well else "problems",
            about=serves if well else f"{ago}; {serves}",
            bad=not well,
            points=[float(each == place) for each in range(STEPS)],
            link="/load",
        )

    def _health(self, check: Callable[[], tuple[tuple[str, ...], int]]) -> tuple[tuple[str, ...], int]:
        at, down, total = self._seen.get("health and names", (0.0, (), 0))
        if not 0 <= time() - at <= _HEALTH_SECONDS:  # the clock may have been set back
            down, total = check()
            self._seen["health and names"] = (time(), down, total)
        return down, total

    def _in_flight(self) -> int:
        return sum(number for plugin, number in self._host.in_flight_by_plugin.items() if plugin != self._own)

    def _step(self) -> _Step:
        number = int(time() // STEP)
        if number not in self._steps:
            self._steps[number] = [0, 0, 0, 0, Counter()]
            for old in [each for each in self._steps if not number - STEPS < each <= number]:
                del self._steps[old]
        return self._steps[number]


def _traffic(steps: Sequence[_Step]) -> list[Sign]:
    """Return the signs of requests: rate, errors and durations."""
    recent = sum(each[0] for each in steps[-_STEPS_OF_NOW:])
    errors = sum(each[1] for each in steps)
    return [
        Sign(
            name="Requests",
            value=f"{recent / (STEP * _STEPS_OF_NOW):.1f} a second",
            about="over the last ten seconds",
            points=[each[0] / STEP for each in steps],
            link="/requests",
        ),
        Sign(
            name="Errors",
            value=f"{errors:,}",
            about="answered 5xx in five minutes",
            bad=errors > 0,
            points=[each[1] for each in steps],
            link="/requests?status=5",
        ),
        _times("Median time", 0.5, steps, "/requests"),
        _times("95th percentile", 0.95, steps, "/requests?order=slowest"),
    ]


def _times(name: str, share: float, steps: Sequence[_Step], link: str) -> Sign:
    recent = sum((each[4] for each in steps[-_STEPS_OF_TIMES:]), Counter[int]())
    return Sign(
        name=name,
        value=_written(_quantile(recent, share)),
        about=f"p{100 * share:.0f} of the last minute",
        points=[_quantile(each[4], share) for each in steps],
        link=link,
    )


def _size(seconds: float) -> int:
    return round(math.log2(max(seconds, 1e-6)) * _PER_DOUBLING)


def _quantile(times: Counter[int], share: float) -> float:
    """Return a quantile of the request times in milliseconds, or 0 without requests."""
    left = times.total() * share
    for size in sorted(times):
        left -= times[size]
        if left <= 0:
            return float(2 ** (size / _PER_DOUBLING) * 1000)
    return 0.0


def _written(milliseconds: float) -> str:
    if not milliseconds:
        return "no request"
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    return f"{milliseconds:.2g} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"


def _ago(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 3600 else f"{seconds / 3600:.0f} h ago"
