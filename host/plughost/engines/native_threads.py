"""Threads that are not Python's: recognised by the name that they inherit, and waited for.

granian tells that it has stopped from a thread of its own, which needs the interpreter for a moment longer. If that
ends meanwhile, the whole process aborts. Only Linux shows such threads; elsewhere nothing is waited for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Final

_TASKS: Final = Path("/proc/self/task")
_NAME_LIMIT: Final = 15
_LOOK_SECONDS: Final = 0.002


def name_this_thread(name: str) -> None:
    """Name the calling thread for the system, and with it those that native code starts from it.

    Args:
        name: 15 characters at most.
    """
    with contextlib.suppress(OSError):
        (_TASKS / str(threading.get_native_id()) / "comm").write_text(name[:_NAME_LIMIT])


def wait_for_threads(name: str, timeout: float) -> bool:
    """Wait until no thread has a name.

    Args:
        name: As it was given to `name_this_thread`.
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
