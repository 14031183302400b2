"""Counting in Redis, which may go away at any time without slowing a request down for long."""

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

PAUSE: Final = 1.0
"""Seconds after a failure in which Redis is left alone; after that, one request tries it again."""


class StorageUnavailable(Exception):  # noqa: N818 - reads better where it is caught
    """Redis can't be used at the moment."""


class SharedWindows:
    """Windows in Redis, of every counter of every host that uses it."""

    def __init__(self, url: str, timeout: float, logger: structlog.stdlib.BoundLogger) -> None:
        """Prepare to connect. Nothing is sent before the first use.

        Connecting and each answer may take `timeout` seconds. Losing and finding Redis is logged, once each.
        """
        from limits.errors import StorageError  # noqa: PLC0415 - takes long to import
        from limits.storage import RedisStorage  # noqa: PLC0415 - as above
        from redis.backoff import NoBackoff  # noqa: PLC0415 - the extra `redis` is not always installed
        from redis.retry import Retry  # noqa: PLC0415 - as above

        self.place: str = mask_password(url)
        # redis-py would try again for seconds. What fails here is noticed below, for all requests at once.
        options: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
        }
        self._failures = (StorageError, OSError)
        self._storage = RedisStorage(url, wrap_exceptions=True, **options)
        self._logger = logger.bind(storage=self.place)
        self._lock = threading.Lock()
        self._down = False
        self._retry_at = 0.0
        self._found = 0

    def hit(self, key: str, seconds: int, length: Callable[[int], int] | None = None) -> tuple[int, float]:
        """Count one. Return how many that makes in this window, and the seconds until it ends.

        With `length`, each hit begins the window anew, as long as that returns for the number of hits.

        Raises:
            StorageUnavailable: Redis can't be used.
        """

        def count(storage: RedisStorage) -> tuple[int, float]:
            used = storage.incr(key, seconds)
            if length is None:
                return used, storage.get_expiry(key) - time.time()
            storage.storage.expire(storage.prefixed_key(key), length(used))
            return used, float(length(used))

        return self._use(count)

    def look(self, key: str) -> tuple[int, float]:
        """Return the same without counting. Raises as `hit`."""
        return self._use(lambda storage: (storage.get(key), storage.get_expiry(key) - time.time()))

    def answers(self) -> bool:
        """Tell whether it can be used."""
        try:
            self._use(lambda storage: storage.get("ping"))  # its own check() hides why it fails
        except StorageUnavailable:
            return False
        return True

    def close(self) -> None:
        """Close the connections. A later use opens new ones."""
        self._storage.storage.close()

    def _use(self, operation: Callable[[RedisStorage], T]) -> T:
        if self._down and not self._may_try():
            raise StorageUnavailable
        found = self._found
        try:
            result = operation(self._storage)
        except self._failures as error:
            self._lose(error, found)
            raise StorageUnavailable from error
        if self._down:
            self._find()
        return result

    def _may_try(self) -> bool:
        """Return whether to try again. Only one caller gets True."""
        with self._lock:
            now = time.monotonic()
            if now < self._retry_at:
                return False
            self._retry_at = now + PAUSE
            return True

    def _lose(self, error: Exception, found: int) -> None:
        with self._lock:
            if found != self._found:  # it was asked before it was found again, and says nothing about now
                return
            self._retry_at = time.monotonic() + PAUSE
            known, self._down = self._down, True
        if not known:
            self._logger.warning("the storage of rate limits is not available", reason=str(error))

    def _find(self) -> None:
        with self._lock:
            known, self._down = self._down, False
            self._found += known
        if known:
            self._logger.info("the storage of rate limits is back")
