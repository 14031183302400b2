"""Threads that native code starts. They are found by the name that they inherit, on Linux only."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_TASKS: Final = Path("/proc/self/task")
_TASKS_TIMEOUT: Final = 2.0
_IDLE_CHECKS: Final = 5  # in a row: a worker waits, too, while a thread that has work for it waits for the GIL
TOKIO_WORKER: Final = "tokio-rt-worker"


def call_in_named_thread(name: str, function: Callable[[], object], bind: Callable[[], object]) -> frozenset[str]:
    """Call a function in a thread of that name (at most 15 characters); return the ids of the threads that it started.

    They inherit the processors that `bind` chooses for the thread.
    """
    before = {task.name for task in _TASKS.glob("*")}
    with ThreadPoolExecutor(1, initializer=_name_thread, initargs=(name, bind)) as pool:
        pool.submit(function).result()
    return frozenset(task.name for task in _TASKS.glob("*")) - before


def call_when_idle(threads: frozenset[str], function: Callable[[], object]) -> None:
    """Call a function once tokio's worker, the first thread of its name, has no task to run, or after 2 s.

    A task that is dropped with its runtime drops Python objects without the GIL, and then pyo3 aborts the process.
    """
    deadline = time.monotonic() + _TASKS_TIMEOUT
    worker = min((thread for thread in threads if _has_name(_TASKS / thread, TOKIO_WORKER)), key=int, default="ended")
    idle_checks = 0
    while idle_checks < _IDLE_CHECKS and time.monotonic() < deadline:
        time.sleep(0.002)
        idle_checks = idle_checks + 1 if _is_waiting_for_events(_TASKS / worker) else 0
    function()


def wait_for_threads(name: str, timeout: float) -> None:
    """Wait until no thread has this name, except threads of the dispatcher, which may have inherited it."""
    deadline = time.monotonic() + timeout
    ignored = {str(each.native_id) for each in threading.enumerate() if each.name.startswith("plughost-")}
    while any(_has_name(task, name) for task in _TASKS.glob("*") if task.name not in ignored):
        if time.monotonic() > deadline:
            return
        time.sleep(0.002)


def _name_thread(name: str, bind: Callable[[], object]) -> None:
    bind()
    with contextlib.suppress(OSError):
        (_TASKS / str(threading.get_native_id()) / "comm").write_text(name)


def _has_name(task: Path, name: str) -> bool:
    try:
        return (task / "comm").read_text() == f"{name}\n"
    except OSError:  # the thread has just ended
        return False


def _is_waiting_for_events(task: Path) -> bool:
    """Return whether a thread has ended or waits for events: it neither runs nor waits for the GIL."""
    try:
        return "poll" in (task / "wchan").read_text()
    except OSError:
        return True
