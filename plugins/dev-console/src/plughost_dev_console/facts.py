"""The data of health checks, formatted for people: sizes and ages instead of bytes and times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_word = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Fact(NamedTuple):
    """A fact.

    Attributes:
        name: Its name.
        text: Its value, for people.
        exact: The original value if it differs from the text, else empty.
    """

    name: str
    text: str
    exact: str


def facts(data: Mapping[str, object], now: datetime | None = None) -> Iterator[Fact]:
    """Yield the data of a check as facts.

    Args:
        data: The check's data: names such as `freeBytes`, and JSON values.
        now: The current time with a time zone; by default from the clock.
    """
    for name, value in data.items():
        words = _word.sub(" ", name).lower() if name.isidentifier() else name
        whole = isinstance(value, int) and not isinstance(value, bool)
        moment = _moment(value)
        if whole and words.endswith(" bytes"):
            yield Fact(words.removesuffix(" bytes"), size(int(str(value))), f"{value} bytes")
        elif moment is not None:
            yield Fact(words, distance(moment - (now or datetime.now(UTC))), str(value))
        else:
            yield Fact(words, f"{value:,}" if whole and words != "pid" else str(value), "")


def size(number: float) -> str:
    """Format a number of bytes in the largest suitable unit."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while abs(number) >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return f"{number:,.1f} {units[0]}" if units[0] != "bytes" and number < 100 else f"{number:,.0f} {units[0]}"


def distance(span: timedelta) -> str:
    """Format the distance of a moment from now."""
    text = duration(abs(span))
    return f"in {text}" if span > timedelta() else f"{text} ago"


def duration(span: timedelta) -> str:
    """Format a duration in its two largest units."""
    seconds = int(span.total_seconds())
    days, rest = divmod(seconds, 86400)
    if days:
        return f"{days} d {rest // 3600} h"
    if rest >= 3600:
        return f"{rest // 3600} h {rest % 3600 // 60} min"
    return f"{rest // 60} min {rest % 60} s" if rest >= 60 else f"{rest} s"


def _moment(value: object) -> datetime | None:
    """Return the time in a text, if it has a time zone."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
