"""Counters: how often something happened for a key, within a limit."""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator

from plughost._api.declarations import Check, Health
from plughost._logging import silent_logger
from plughost._settings.models import MEMORY, RateLimitSettings
from plughost.ratelimits._memory import MemoryWindows
from plughost.ratelimits._shared import SharedWindows, StorageUnavailable

if TYPE_CHECKING:
    import structlog

_LONGEST_KEY: Final = 64


def _limit(text: str) -> str:
    from limits import parse_many  # noqa: PLC0415 - takes long to import, and few commands count

    with suppress(ValueError):
        parsed = parse_many(text)
        if len(parsed) == 1 and parsed[0].amount >= 1 and parsed[0].get_expiry() >= 1:
            return text
    message = f"must be one limit that allows at least one, such as 100/minute or 5 per 2 hours, not {text!r}"
    raise ValueError(message)


Limit = Annotated[str, AfterValidator(_limit)]
"""A limit in a plugin's settings: an amount per time, such as `100/minute` or `5 per 2 hours`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a limit is used.

    Attributes:
        limit: What is allowed in a window.
        used: How much was counted in this one.
        reset: Whole seconds until the window ends, at least one.
    """

    limit: int
    used: int
    reset: int

    @property
    def remaining(self) -> int:
        """How much is left."""
        return max(0, self.limit - self.used)

    @property
    def exceeded(self) -> bool:
        """Whether what was counted last was too much."""
        return self.used > self.limit


class Counter:
    """Counts by key, in fixed windows that begin with a key's first hit.

    One with `longest` begins a key's window anew with each hit: a key is forgotten once it has not been hit for the
    length of a window. Each hit beyond the limit makes that wait a sixth longer, up to `longest` seconds.

    Attributes:
        limit: What it was made with, such as `100/minute`.
        amount: What is allowed in a window.
        seconds: The length of a window.
    """

    def __init__(
        self,
        name: str,
        limit: str,
        shared: SharedWindows | None,
        *,
        refuse: bool = False,
        always: bool = False,
        longest: int | None = None,
    ) -> None:
        """Make a counter. Plugins call `PluginContext.counter`.

        Args:
            name: Distinguishes it from the other counters of all plugins.
            limit: An amount per time. See `Limit`.
            shared: Redis. None to count in memory.
            refuse: Whether to raise rather than let through while Redis is away.
            always: Count in memory while Redis is away, whatever `refuse` says.
            longest: Seconds of the longest wait of growing ones. None for fixed windows.
        """
        from limits import parse  # noqa: PLC0415 - see above

        self.limit = limit
        try:
            self._item = parse(_limit(limit))
        except ValueError as error:  # of a default, which pydantic doesn't look at
            message = f"the limit of the counter {name} {error}"
            raise ValueError(message) from None
        self._name = name
        self._shared = shared
        self._refuse = refuse and not always
        self._always = always
        self.amount: int = int(self._item.amount)
        self.seconds: int = int(self._item.get_expiry())
        self._longest = max(longest or 0, self.seconds)
        self._length = None if longest is None else self._growing
        self._memory = MemoryWindows(self.seconds, length=self._length)

    def hit(self, key: str) -> Usage:
        """Count one for a key.

        Args:
            key: Anything. Long ones are kept as a hash, so that clients can't fill memory with them.

        Raises:
            StorageUnavailable: Redis is away, and the settings say not to let anything through uncounted.
        """
        return self._count(key, hit=True)

    def look(self, key: str) -> Usage:
        """Return a key's usage without counting. Raises as `hit`."""
        return self._count(key, hit=False)

    def _count(self, key: str, *, hit: bool) -> Usage:
        if len(key) > _LONGEST_KEY or not key.isascii():
            key = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        if self._shared is not None:
            try:
                shared_key = self._item.key_for("plughost", self._name, key)
                if hit:
                    return self._usage(*self._shared.hit(shared_key, self.seconds, self._length))
                return self._usage(*self._shared.look(shared_key))
            except StorageUnavailable:
                if self._refuse:
                    raise
                if not self._always:
                    return self._usage(0, self.seconds)
        return self._usage(*(self._memory.hit(key) if hit else self._memory.look(key)))

    def _usage(self, used: int, seconds: float) -> Usage:
        # A window that ended just now, or another host's clock, must not show as zero, below or for ever.
        return Usage(self.amount, used, min(max(1, math.ceil(seconds)), self._longest))

    def _growing(self, used: int) -> int:
        """Return the seconds that a key with so many hits is remembered for."""
        return min(self._longest, self.seconds + max(0, used - self.amount) * self.seconds // 6)


class RateLimits:
    """Where a host counts.

    Attributes:
        settings: The table `[rate_limits]`.
    """

    def __init__(
        self, settings: RateLimitSettings | None = None, logger: structlog.stdlib.BoundLogger | None = None
    ) -> None:
        """Prepare what the settings say. By default to count in memory."""
        self.settings: RateLimitSettings = settings or RateLimitSettings()
        self._refuses = self.settings.on_storage_failure == "refuse"
        self._shared = None
        url = self.settings.storage.get_secret_value()
        if url != MEMORY:
            self._shared = SharedWindows(url, self.settings.timeout, logger or silent_logger())

    def counter(self, name: str, limit: str, *, always: bool = False, longest: int | None = None) -> Counter:
        """Return a counter. See `Counter`."""
        return Counter(name, limit, self._shared, refuse=self._refuses, always=always, longest=longest)

    def checks(self) -> tuple[Check, ...]:
        """Return the health check of Redis. None where counting is done in memory.

        While requests are let through without Redis, its absence shows in the health and makes no probe fail: it must
        not take every host out of service at once.
        """
        if self._shared is None:
            return ()
        return (Check(name="rate-limits", check=self._health, kinds=frozenset({"ready"} if self._refuses else ())),)

    def _health(self) -> Health:
        assert self._shared is not None, "there is no check without Redis"
        data = {"storage": self._shared.place, "on_storage_failure": self.settings.on_storage_failure}
        return Health(up=self._shared.answers(), data=data)

    def close(self) -> None:
        """Close the connections to Redis."""
        if self._shared is not None:
            self._shared.close()
