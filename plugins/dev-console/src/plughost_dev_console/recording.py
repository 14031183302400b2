"""Records: the last requests of the host, and the last lines of its log, each in a ring of bounded size."""

from __future__ import annotations

import json
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final

import falcon

if TYPE_CHECKING:
    from plughost.events import Event
    from plughost.http import Request

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_LONGEST_PATH: Final = 300
_LONGEST_LINE: Final = 4000

Recorded = tuple[int, float, str, str, Any, float, str, str, str, str]


class Requests:
    """Records requests, as a Falcon middleware around all sites; costs each about a microsecond."""

    def __init__(self, ring: deque[Recorded], numbers: count[int], own: str) -> None:
        """Record into a ring.

        Args:
            ring: Where to.
            numbers: What numbers them.
            own: The plugin whose requests are left out: the console's, which asks all the time.
        """
        self._ring = ring
        self._numbers = numbers
        self._own = own

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Record the request, and how long it took until its response began."""
        mounted, environ = req.mounted, req.env
        plugin = mounted.plugin if mounted is not None else ""
        if plugin == self._own:
            return
        self._ring.append(
            (
                next(self._numbers),
                time(),
                req.method,
                (environ.get("REQUEST_URI") or req.path)[:_LONGEST_PATH],
                resp.status,
                (perf_counter() - req.arrived) * 1000,
                plugin,
                environ["plughost.site"].name,
                environ.get("SERVER_PROTOCOL", ""),
                req.request_id,
            )
        )

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the requests after a number, oldest first, as JSON has them."""
        names = ("number", "at", "method", "path", "status", "ms", "plugin", "site", "http", "id")
        return [
            {
                **dict(zip(names, each, strict=True)),
                "status": _code(each[4]),  # not where it is recorded, since it takes its time
                "ms": round(each[5], 2),
                "time": clock(each[1]),
            }
            for each in tuple(self._ring)
            if each[0] > number
        ]


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


def _code(status: Any) -> int:
    try:
        code: int = falcon.http_status_to_code(status)
    except (TypeError, ValueError):  # none that can be sent: the engine answers 500 in its place
        return 500
    return code


def _written(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        yield f"{name}={value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)}"


def _trace(given: Any) -> str:
    if isinstance(given, tuple) and len(given) == 3:
        given = given[1]
    return "".join(traceback.format_exception(given)) if isinstance(given, BaseException) else ""
