"""The last lines of the host's log, in two ring buffers: all lines, and only warnings and errors."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Final

from plughost_dev_console.recording import clock
from plughost_dev_console.tracebacks import own_frames

if TYPE_CHECKING:
    from collections import deque
    from itertools import count

    from plughost import Event

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_WRONG: Final = frozenset({"warning", "error", "critical"})
_LONGEST_LINE: Final = 4000


class Lines:
    """Records the lines of the host's log, as a subscriber."""

    def __init__(
        self, ring: deque[dict[str, Any]], wrong: deque[dict[str, Any]], numbers: count[int], own: str
    ) -> None:
        """Take the ring buffers: of every line, and of warnings and errors, which other lines can't push out.

        `own` is the console's own plugin, whose frequent requests are left out.
        """
        self._ring = ring
        self._wrong = wrong
        self._numbers = numbers
        self._own = own

    def __call__(self, event: Event) -> None:
        """Record a line as text, because its values may change or be large."""
        if self._ring and self._ring[-1]["event"] is event:  # during a reload, two instances record
            return
        fields = dict(event.fields)
        if event.plugin == self._own and fields.get("event") == "request":
            return
        long = [name for name, value in fields.items() if isinstance(value, str) and "\n" in value and name != "event"]
        trace = "\n".join([_trace(fields.pop("exc_info", None)), *(fields.pop(name) for name in long)]).strip()
        level, text = str(fields.pop("level", "info")), str(fields.pop("event", ""))
        identity = str(fields.pop("request_id", None) or "")
        for name in ("plugin", "timestamp"):  # they have their own columns
            fields.pop(name, None)
        line = {
            "event": event,
            "number": next(self._numbers),
            "time": clock(time()),
            "level": level,
            "plugin": event.plugin or "",
            "text": text[:_LONGEST_LINE],
            "fields": "  ".join(_written(fields))[:_LONGEST_LINE],
            "trace": trace[-_LONGEST_LINE:],
            "own": own_frames(trace)[-_LONGEST_LINE:],
            "id": identity,
        }
        self._ring.append(line)
        if level in _WRONG:
            self._wrong.append(line)

    def since(
        self, after: int, *, level: str = "", q: str = "", request: str = "", plugin: str = ""
    ) -> list[dict[str, Any]]:
        """Return the lines after a number, oldest first.

        Args:
            after: The number of the last known line.
            level: The lowest level to return.
            q: Words that a line must contain; case is ignored.
            request: The id of the request that a line is about.
            plugin: The plugin that a line is about.
        """
        lowest = LEVELS.index(level) if level in LEVELS else 0
        words = q.lower().split()
        kept = {each["number"]: each for each in (*tuple(self._wrong), *tuple(self._ring))}
        return [
            {name: value for name, value in kept[each].items() if name != "event"}
            for each in sorted(kept)
            if each > after
            and _matches(kept[each], lowest, words, request)
            and plugin in ("", kept[each]["plugin"].partition(" ")[0])
        ]


def _matches(line: Mapping[str, Any], lowest: int, words: list[str], request: str) -> bool:
    if request and line["id"] != request:
        return False
    if lowest and line["level"] in LEVELS and LEVELS.index(line["level"]) < lowest:
        return False
    if not words:
        return True
    text = f"{line['text']} {line['fields']} {line['plugin']} {line['level']} {line['id']} {line['trace']}".lower()
    return all(word in text for word in words)


def _written(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        yield f"{name}={value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)}"


def _trace(given: Any) -> str:
    if isinstance(given, tuple) and len(given) == 3:
        given = given[1]
    return "".join(traceback.format_exception(given)) if isinstance(given, BaseException) else ""
