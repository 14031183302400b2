"""Values formatted for people: the data of health checks, with sizes and ages for bytes and times, and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from plughost import Value

_word = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_unit: Final = re.compile(r"\b(milliseconds|seconds|minutes|days|bytes|MiB)\b", re.IGNORECASE)
_MASK: Final = "**********"


class Fact(NamedTuple):
    """A fact: its name, its value for people, and the original value if that differs, else an empty string."""

    name: str
    text: str
    exact: str


def facts(data: Mapping[str, object], now: datetime | None = None) -> Iterator[Fact]:
    """Yield the data of a check, names such as `freeBytes` and JSON values, as facts."""
    for name, value in data.items():
        words = _word.sub(" ", name).lower() if name.isidentifier() else name
        whole = isinstance(value, int) and not isinstance(value, bool)
        moment = _moment(value)
        if whole and words.endswith(" bytes"):
            yield Fact(words.removesuffix(" bytes"), size(int(str(value))), f"{value} bytes")
        elif moment is not None:
            left = moment - (now or datetime.now(UTC))
            text = duration(abs(left))
            yield Fact(words, f"in {text}" if left > timedelta() else f"{text} ago", str(value))
        else:
            yield Fact(words, f"{value:,}" if whole and words != "pid" else str(value), "")


def size(number: float) -> str:
    """Format a number of bytes in the largest suitable unit."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while abs(number) >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return f"{number:,.1f} {units[0]}" if units[0] != "bytes" and number < 100 else f"{number:,.0f} {units[0]}"


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


def format_setting(value: object) -> str:
    """Format a setting's value."""
    if value is None or value in ("", [], (), {}):
        return "none" if value is None else "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {format_setting(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(
            f"({format_setting(each)})" if isinstance(each, (Mapping, list)) else format_setting(each) for each in value
        )
    return str(value)


def unit_of(setting: Value) -> str:
    """Return the first unit in a setting's description, or an empty string."""
    found = _unit.search(setting.description)
    return found[0].lower() if found else ""


def is_secret(setting: Value) -> bool:
    """Return whether a setting's value is masked."""
    return _MASK in str(setting.value)
