"""The last requests of the host, in a ring buffer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final

import falcon

if TYPE_CHECKING:
    from collections import deque
    from itertools import count

    from plughost import HostView, RequestRecord

    _Numbered = tuple[int, float, RequestRecord]  # its number, and when `perf_counter` was 0, since the epoch

MAX_PER_SECOND: Final = 1000  # nobody reads more, and recording costs time
MAX_SHOWN: Final = 500
_LONGEST_PATH: Final = 300
# The look ahead for = keeps the search linear.
_SECRET_FIELD: Final = re.compile(
    r"([?&](?=[^?&=]+=)[^?&=]*(?:token|secret|passw|api_?key|signature)[^?&=]*=)[^&]+", re.IGNORECASE
)
MASKED: Final = "••••••"


class Requests:
    """Records requests, as an observer."""

    def __init__(self, ring: deque[_Numbered], numbers: count[int], own: str, host: HostView) -> None:
        """Take the ring buffer. `own` is the console's own plugin, whose requests are left out."""
        self._ring = ring
        self._numbers = numbers
        self._own = own
        self._host = host

    def observe(self, requests: tuple[RequestRecord, ...]) -> None:
        """Record requests. They are formatted only when a page shows them."""
        others = [each for each in requests if each.plugin != self._own]
        epoch = time() - perf_counter()  # anew each time: the clock may have been set, or the machine slept
        self._ring.extend([(next(self._numbers), epoch, each) for each in others])

    def since(
        self, after: int, *, plugin: str = "", status: str = "", minutes: int = 0, q: str = "", order: str = ""
    ) -> list[dict[str, Any]]:
        """Return the requests after a number as JSON values, oldest first, or slowest last.

        Args:
            after: The number of the last known request.
            plugin: The plugin that served them; `none` for requests without a plugin.
            status: The first digit of their status, or `bad` for 4xx and 5xx.
            minutes: Their maximum age; 0 for any.
            q: Words that path, method or id must contain; case is ignored.
            order: `slowest`, or by time.
        """
        words = q.lower().split()
        oldest = int(time()) - 60 * minutes if minutes > 0 else 0  # an integer, because minutes may exceed a float
        found = [
            shown
            for each, epoch, request in self._numbered()
            if each > after
            and _matches(request, plugin, status)
            and (shown := _as_json(each, request, epoch))["at"] >= oldest
            and (not words or all(word in f"{shown['method']} {shown['path']} {shown['id']}".lower() for word in words))
        ]
        return sorted(found, key=lambda each: float(each["ms"])) if order == "slowest" else found

    def get(self, number: str) -> tuple[dict[str, Any], RequestRecord]:
        """Return one request as JSON values and as observed."""
        for each, epoch, found in self._numbered():
            if str(each) == number:
                return _as_json(each, found, epoch), found
        raise falcon.HTTPNotFound(description="This request is no longer recorded, or never arrived.")

    def number_of(self, request_id: str) -> int | None:
        """Return the number of the last request with an id, or None."""
        found = [number for number, _, each in self._numbered() if each.request_id == request_id]
        return found[-1] if found else None

    def _numbered(self) -> tuple[_Numbered, ...]:
        self._host.catch_up()
        return tuple(self._ring)


def clock(seconds: float) -> str:
    """Format seconds since the epoch as local time."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%H:%M:%S")


def masked(target: str) -> str:
    """Return a path and query with the values of fields such as `token` masked."""
    return _SECRET_FIELD.sub(rf"\1{MASKED}", target)


def _matches(request: RequestRecord, plugin: str, status: str) -> bool:
    if plugin and request.plugin != ("" if plugin == "none" else plugin):
        return False
    return not status or (request.code >= 400 if status == "bad" else str(request.code)[0] == status[0])


def _as_json(number: int, request: RequestRecord, epoch: float) -> dict[str, Any]:
    at = epoch + request.arrived + request.seconds
    return {
        "number": number,
        "at": at,
        "time": clock(at),
        "method": request.method,
        "path": masked(request.target)[:_LONGEST_PATH],
        "status": request.code,
        "ms": round(request.seconds * 1000, 2),
        "plugin": request.plugin,
        "site": request.site,
        "http": request.protocol,
        "id": request.request_id,
    }
