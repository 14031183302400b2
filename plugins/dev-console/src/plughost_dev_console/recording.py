"""Records: the last requests of the host, and the last lines of its log, each in a ring of bounded size."""

from __future__ import annotations

import json
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plughost import Event, HostView, RequestRecord

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
MOST_A_SECOND: Final = 1000  # nobody reads more, and each costs a loaded host something
_LONGEST_PATH: Final = 300
_LONGEST_LINE: Final = 4000


class Requests:
    """Records requests, as an observer."""

    def __init__(
        self, ring: deque[RequestRecord], last: list[int], lock: threading.Lock, own: str, host: HostView
    ) -> None:
        """Record into a ring.

        Args:
            ring: Where to.
            last: One item: the number of the last request.
            lock: Guards both.
            own: The plugin whose requests are left out: the console's, which asks all the time.
            host: The host.
        """
        self._ring = ring
        self._last = last
        self._lock = lock
        self._own = own
        self._host = host
        self._epoch = time() - perf_counter()

    def observe(self, requests: tuple[RequestRecord, ...]) -> None:
        """Record requests; what is shown of them is worked out when somebody looks."""
        others = [each for each in requests if each.mounted is None or each.mounted.plugin != self._own]
        with self._lock:
            self._ring.extend(others)
            self._last[0] += len(others)

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the requests after a number, oldest first, as JSON has them."""
        self._host.catch_up()
        with self._lock:
            requests, last = tuple(self._ring), self._last[0]
        numbered = enumerate(requests, last - len(requests) + 1)
        return [_shown(each, request, self._epoch) for each, request in numbered if each > number]


class Lines:
    """Records the lines of the host's log, as a subscriber."""

    def __init__(self, ring: deque[dict[str, Any]], numbers: count[int], own: str) -> None:
        """Record into a ring; see `Requests`."""
        self._ring = ring
        self._numbers = numbers
        self._own = own

    def __call__(self, event: Event) -> None:
        """Record a line, as text: what it held may change or be large."""
        if self._ring and self._ring[-1]["event"] is event:  # two instances watch while one takes over from the other
            return
        fields = dict(event.fields)
        if event.plugin == self._own and fields.get("event") == "request":
            return
        long = [name for name, value in fields.items() if isinstance(value, str) and "\n" in value and name != "event"]
        trace = "\n".join([_trace(fields.pop("exc_info", None)), *(fields.pop(name) for name in long)]).strip()
        level, text = str(fields.pop("level", "info")), str(fields.pop("event", ""))
        fields.pop("plugin", None)
        now = time()
        self._ring.append(
            {
                "event": event,
                "number": next(self._numbers),
                "time": clock(now),
                "level": level,
                "plugin": event.plugin or "",
                "text": text[:_LONGEST_LINE],
                "fields": "  ".join(_written(fields))[:_LONGEST_LINE],
                "trace": trace[-_LONGEST_LINE:],
            }
        )

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the lines after a number, oldest first."""
        return [
            {name: value for name, value in each.items() if name != "event"}
            for each in tuple(self._ring)
            if each["number"] > number
        ]


def clock(seconds: float) -> str:
    """Return a time of the epoch as the machine's clock shows it."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


def _shown(number: int, request: RequestRecord, epoch: float) -> dict[str, Any]:
    at = epoch + request.arrived + request.seconds
    return {
        "number": number,
        "at": at,
        "time": clock(at),
        "method": request.method,
        "path": request.target[:_LONGEST_PATH],
        "status": request.code,
        "ms": round(request.seconds * 1000, 2),
        "plugin": request.plugin,
        "site": request.site,
        "http": request.protocol,
        "id": request.request_id,
    }


def _written(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        yield f"{name}={value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)}"


def _trace(given: Any) -> str:
    if isinstance(given, tuple) and len(given) == 3:
        given = given[1]
    return "".join(traceback.format_exception(given)) if isinstance(given, BaseException) else ""
