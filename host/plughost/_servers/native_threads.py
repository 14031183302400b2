"""Threads that are not Python's: known by the name that they inherit, and waited for.

granian tells that it has stopped from a thread of its own, which needs the interpreter for a moment longer. If that
ends meanwhile, the whole process aborts. Only Linux shows such threads; elsewhere nothing is waited for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TASKS: Final = Path("/proc/self/task")
_NAME_LIMIT: Final = 15
_LOOK_SECONDS: Final = 0.002


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Name the calling thread for the system meanwhile, and with it the threads that native code starts from it.

    Args:
        name: 15 characters at most.
    """
    own = _TASKS / str(threading.get_native_id()) / "comm"
    before = ""
    with contextlib.suppress(OSError):
        before = own.read_text().rstrip("\n")
        own.write_text(name[:_NAME_LIMIT])
    try:
        yield
    finally:
        if before:
            with contextlib.suppress(OSError):
                own.write_text(before)


def wait_for_threads(name: str, timeout: float) -> bool:
    """Wait until no thread has a name.

    Args:
        name: As it was given to `named`.
        timeout: Seconds to wait at most.

    Returns:
        Whether none is left.
    """
    deadline = time.monotonic() + timeout
    while _has_thread(name[:_NAME_LIMIT]):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _has_thread(name: str) -> bool:
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().rstrip("\n") == name:
                    return True
    return False
