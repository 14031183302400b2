"""Counting in Redis, whose outage never slows a request down for long; or in this process, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from plughost._settings.masking import mask_password

if TYPE_CHECKING:
    import structlog
    from limits.storage import RedisStorage

T = TypeVar("T")

RETRY_DELAY: Final = 1.0
"""Seconds after a failure without another try; then one request tries Redis again."""

MAX_KEYS: Final = 100_000
"""How many keys one counter remembers, which takes about 25 MB."""


class StorageUnavailable(Exception):  # noqa: N818 - reads better where it is caught
    """Redis can't be used at the moment."""


def refused_by_client(url: str) -> str | None:
    """Return why the client of Redis can't use a URL, whatever server answers, such as an unknown parameter."""
    from redis import ConnectionPool, RedisError  # noqa: PLC0415 - the extra `redis` is not always installed

    try:
        ConnectionPool.from_url(url.replace("redis+unix:", "unix:", 1)).make_connection()  # it isn't connected yet
    except (RedisError, TypeError, ValueError) as error:
        return str(error).rstrip(".")
    return None


class SharedWindows:
    """The windows of all counters of all hosts that share a Redis."""

    def __init__(self, url: str, timeout: float, logger: structlog.stdlib.BoundLogger) -> None:
        """Prepare to connect. Nothing is sent before the first use.

        Connecting and each response may take `timeout` seconds. Each outage and each return of Redis is logged once.
        """
        from limits.errors import StorageError  # noqa: PLC0415 - takes long to import
        from limits.storage import RedisStorage  # noqa: PLC0415 - as above
        from redis import RedisError  # noqa: PLC0415 - the extra `redis` is not always installed
        from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
        from redis.retry import Retry  # noqa: PLC0415 - as above

        self.masked_url: str = mask_password(url)
        # redis-py would retry for seconds. Failures are handled below, for all requests at once.
        options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
        }
        self._failures = (StorageError, RedisError, OSError)
        self._storage = RedisStorage(url, wrap_exceptions=True, **options)
        self._logger = logger.bind(storage=self.masked_url)
        self._lock = threading.Lock()
        self._retrying = threading.Lock()
        self._down = False
        self._retry_at = 0.0
        self._recoveries = 0

    def hit(self, key: str, seconds: int, length: Callable[[int], int] | None = None) -> tuple[int, float]:
        """Count a hit. Return the hits in this window, and the seconds until it ends.

        With `length`, each hit restarts the window; `length` returns its seconds for a number of hits.
        """

        def count(storage: RedisStorage) -> tuple[int, float]:
            used = storage.incr(key, seconds)
            if length is None:
                return used, _seconds_left(storage, key)
            storage.storage.expire(storage.prefixed_key(key), length(used))
            return used, float(length(used))

        return self._use(count)

    def look(self, key: str) -> tuple[int, float]:
        """Return the same without counting. Raises as `hit`."""
        return self._use(lambda storage: (storage.get(key), _seconds_left(storage, key)))

    def is_available(self) -> bool:
        try:
            self._use(_ping)  # its own check() hides why it fails
        except StorageUnavailable:
            return False
        return True

    def close(self) -> None:
        self._storage.storage.close()

    def _use(self, operation: Callable[[RedisStorage], T]) -> T:
        """Use Redis. While it is unavailable, only one caller at a time, once per delay, tries it and may wait."""
        if not self._down:
            return self._attempt(operation)
        if not self._retrying.acquire(blocking=False):
            raise StorageUnavailable
        try:
            if time.monotonic() < self._retry_at:
                raise StorageUnavailable
            return self._attempt(operation)
        finally:
            self._retrying.release()

    def _attempt(self, operation: Callable[[RedisStorage], T]) -> T:
        recoveries = self._recoveries
        try:
            if self._down:  # by now, the name may mean another server, though the former one still answers
                self._storage.storage.connection_pool.disconnect(inuse_connections=False)
                _ping(self._storage)
            result = operation(self._storage)
        except self._failures as error:
            self._note(error, recoveries)
            raise StorageUnavailable from error
        if self._down:
            self._note(None, recoveries)
        return result

    def _note(self, error: Exception | None, recoveries: int) -> None:
        """Note whether Redis can be used, and log each change once."""
        with self._lock:
            if recoveries != self._recoveries:  # the call began before Redis came back
                return
            was_down, self._down = self._down, error is not None
            self._recoveries += error is None and was_down
            self._retry_at = time.monotonic() + RETRY_DELAY
        if error is None and was_down:
            self._logger.info("the storage of rate limits is back")
        elif error is not None and not was_down:
            self._logger.warning("the storage of rate limits is not available", reason=str(error))


def _seconds_left(storage: RedisStorage, key: str) -> float:
    """Return the seconds until a key's window ends. Not `get_expiry`: Redis rounds whole seconds, also downwards."""
    left: int = storage.storage.pttl(storage.prefixed_key(key))
    return left / 1000


def _ping(storage: RedisStorage) -> int:
    """Count something: a Redis that is full, or a replica, still answers reads."""
    return storage.incr("ping", 1)


class MemoryWindows:
    """The windows of one counter.

    Not the MemoryStorage of `limits`: each use starts a thread that scans all keys, clients can make any number of
    keys, and it miscounts if two threads meet as a window ends. Here, mostly the oldest window ends first: dropping
    ended ones takes no search. The clock is monotonic.
    """

    def __init__(self, seconds: int, max_keys: int = MAX_KEYS, length: Callable[[int], int] | None = None) -> None:
        """Prepare windows of some seconds. Beyond `max_keys` of them, the oldest is dropped early.

        With `length`, each hit restarts the window; `length` returns its seconds for a number of hits.
        """
        self._seconds = seconds
        self._max_keys = max_keys
        self._length = length
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def hit(self, key: str) -> tuple[int, float]:
        """Count a hit. Return the hits in this window, and the seconds until it ends."""
        now = time.monotonic()
        with self._lock:
            count, end = self._windows.get(key, (0, 0.0))
            if end <= now:
                count = 0
            if count == 0 or self._length is not None:
                self._windows.pop(key, None)  # so that the new window comes last
                end = now + (self._seconds if self._length is None else self._length(count + 1))
                self._make_room(now)
            self._windows[key] = (count + 1, end)
        return count + 1, end - now

    def look(self, key: str) -> tuple[int, float]:
        """Return the same without counting."""
        now = time.monotonic()
        count, end = self._windows.get(key, (0, 0.0))
        return (count, end - now) if end > now else (0, float(self._seconds))

    def _make_room(self, now: float) -> None:
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest][1] > now and len(self._windows) < self._max_keys:
                return
            del self._windows[oldest]
