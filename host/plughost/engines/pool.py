"""A small thread pool: what `concurrent.futures` does, without a future for each call."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

Job = Callable[[], None]

_LOGGER: Final = logging.getLogger("plughost.engines")


class Pool:
    """Threads that take jobs from one queue, in order.

    Args:
        threads: How many.
        name: What their names begin with.
    """

    def __init__(self, threads: int, name: str) -> None:
        """Start the threads."""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.submit: Callable[[Job], None] = self._jobs.put
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        take = self._jobs.get
        while (job := take()) is not None:
            try:
                job()
            except Exception:
                _LOGGER.exception("a job of an engine failed")

    def close(self, timeout: float) -> bool:
        """End the threads after the jobs that are queued.

        Args:
            timeout: Seconds to wait for them.

        Returns:
            Whether all have ended.
        """
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
