"""Counters: how often something happened for a key, within a limit."""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator

from plughost._api.declarations import Check, Health
from plughost._logging import silent_logger
from plughost._settings.models import MEMORY, RateLimitSettings
from plughost.ratelimits._windows import MemoryWindows, SharedWindows, StorageUnavailable

if TYPE_CHECKING:
    import structlog

_MAX_KEY_LENGTH: Final = 64


def _validate_limit(text: str) -> str:
    from limits import parse_many  # noqa: PLC0415 - takes long to import, and few commands count

    with suppress(ValueError):
        # `limits` takes 5/0 minutes for 5/1 minutes.
        if len(parse_many(text)) == 1 and all(map(int, re.findall(r"\d+", text))):
            return text
    message = f"must be one limit that allows at least one, such as 100/minute or 5 per 2 hours, not {text!r}"
    raise ValueError(message)


Limit = Annotated[str, AfterValidator(_validate_limit)]
"""A limit in a plugin's settings: an amount per time, such as `100/minute` or `5 per 2 hours`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a limit is used.

    Attributes:
        limit: What is allowed in a window.
        used: How much was counted in this window.
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
        """Whether the last hit exceeded the limit."""
        return self.used > self.limit


class Counter:
    """Counts by key, in fixed windows that begin with a key's first hit.

    With `longest`, each hit restarts the key's window: a key is forgotten after a window's length without hits. Each
    hit beyond the limit adds a sixth of the window to that wait, up to `longest` seconds.

    Attributes:
        limit: The limit as given, such as `100/minute`.
        amount: How many hits are allowed in a window.
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
        """Make a counter, as `PluginContext.counter` does for plugins; in memory without `shared`.

        While Redis is unavailable, hits are let through, or refused, or `always` counted in memory.
        """
        from limits import parse  # noqa: PLC0415 - see above

        self.limit = limit
        try:
            self._item = parse(_validate_limit(limit))
        except ValueError as error:  # a default, which pydantic doesn't validate
            message = f"the limit of the counter {name} {error}"
            raise ValueError(message) from None
        self._name = name
        self._shared = shared
        self._refuse = refuse and not always
        self._always = always
        self.amount: int = int(self._item.amount)
        self.seconds: int = int(self._item.get_expiry())
        self._longest = max(longest or 0, self.seconds)
        self._length = None if longest is None else self._growing_length
        self._memory = MemoryWindows(self.seconds, length=self._length)

    def hit(self, key: str) -> Usage:
        """Count one for a key.

        Args:
            key: Any text. Long ones are stored as a hash, so that clients can't fill the memory.

        Raises:
            StorageUnavailable: Redis is unavailable, and the settings let nothing through uncounted.
        """
        return self._count(key, hit=True)

    def look(self, key: str) -> Usage:
        """Return a key's usage without counting. Raises as `hit`."""
        return self._count(key, hit=False)

    def _count(self, key: str, *, hit: bool) -> Usage:
        if len(key) > _MAX_KEY_LENGTH or not key.isascii():
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
        # A window that has just ended, or another host's clock, must not give zero, negative or endless seconds.
        return Usage(self.amount, used, min(max(1, math.ceil(seconds)), self._longest))

    def _growing_length(self, used: int) -> int:
        """Return for how many seconds a key with this many hits is remembered."""
        return min(self._longest, self.seconds + max(0, used - self.amount) * self.seconds // 6)


class RateLimits:
    """The counters of a host, in one storage.

    Attributes:
        settings: The table `[rate_limits]`.
    """

    def __init__(
        self, settings: RateLimitSettings | None = None, logger: structlog.stdlib.BoundLogger | None = None
    ) -> None:
        """Prepare the storage of the settings. Memory by default."""
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
        """Return the health check of Redis. Empty if counts are in memory.

        If requests are let through without Redis, its outage shows in the health but fails no probe: it must not take
        all hosts out of service at once.
        """
        if self._shared is None:
            return ()
        return (Check(name="rate-limits", check=self._health, kinds=frozenset({"ready"} if self._refuses else ())),)

    def _health(self) -> Health:
        assert self._shared is not None, "there is no check without Redis"
        data = {"storage": self._shared.masked_url, "on_storage_failure": self.settings.on_storage_failure}
        return Health(up=self._shared.is_available(), data=data)

    def close(self) -> None:
        """Close the connections to Redis."""
        if self._shared is not None:
            self._shared.close()
