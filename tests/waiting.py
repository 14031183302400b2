"""Waits for what other threads and processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition is true, or fail the test."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        pause.wait(0.01)
