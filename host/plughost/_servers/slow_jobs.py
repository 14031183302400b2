"""The watcher: a thread that looks every few milliseconds at what runs, and tells slow jobs that they are slow."""

from __future__ import annotations

import logging
import threading
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from plughost._servers.processor import Processor
    from plughost._servers.work import Job

TICK_SECONDS: Final = 0.005  # between two looks
_IDLE_TICKS: Final = 20  # without anything to watch, after which it sleeps until it is woken
_LOGGER: Final = logging.getLogger("plughost._servers")


class SlowJobWatcher:
    """A thread that calls a function every few milliseconds while there is anything to watch, and sleeps otherwise.

    Args:
        look: The function. If it raises, this is logged, and the next look is taken as usual.
        is_busy: Whether there is anything to watch.
        processor: The processor that all threads share, if they do.

    Attributes:
        is_asleep: Whether whoever begins something to watch has to call `wake`.
    """

    def __init__(self, look: Callable[[], None], is_busy: Callable[[], bool], processor: Processor) -> None:
        self.is_asleep: bool = True
        self._look = look
        self._is_busy = is_busy
        self._processor = processor
        self._slow_jobs: deque[Job] = deque()  # whose `on_slow` is to be called
        self._lock = allocate_lock()
        self._event = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def wake(self) -> None:
        """Have it look, starting it if needed."""
        with self._lock:
            self.is_asleep = False
            self._event.set()
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="plughost-watch", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError:  # the system allows no further thread: the next request tries again
                    self.is_asleep = True

    def mark_slow(self, thread: int, job: Job) -> None:
        """Let a slow job leave the shared processor, in a thread of this native id. Call its `on_slow` soon."""
        self._processor.unbind(thread)
        self._slow_jobs.append(job)

    def close(self, deadline: float) -> bool:
        """End it. Return whether it has ended by the deadline."""
        self._is_closed = True
        self._event.set()
        if self._thread is None:
            return True
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _watch(self) -> None:
        self._processor.bind()
        idle_ticks = 0
        while not self._is_closed:
            time.sleep(TICK_SECONDS)
            try:
                self._look()
                while self._slow_jobs:
                    self._slow_jobs.popleft().on_slow()
                idle_ticks = 0 if self._is_busy() else idle_ticks + 1
                if idle_ticks > _IDLE_TICKS:
                    self._event.clear()
                    self.is_asleep = True
                    if not (self._is_busy() or self._slow_jobs or self._is_closed):
                        self._event.wait()
                    idle_ticks = 0
            except BaseException:
                _LOGGER.exception("a look at the requests failed")
