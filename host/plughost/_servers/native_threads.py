"""Threads that native code starts: known by the name that they inherit. Only Linux shows them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

_TASKS: Final = Path("/proc/self/task")
_TASKS_SECONDS: Final = 2.0
_LOOKS: Final = 5  # in a row: a worker also waits while another thread, which wants the interpreter, has work for it
TOKIO_WORKER: Final = "tokio-rt-worker"


def call_named(name: str, function: Callable[[], object], place: Callable[[], object]) -> frozenset[str]:
    """Call a function in a thread of that name, of at most 15 characters; return the ids of threads that it started.

    They run on the processors that `place` chooses for the thread that it is called in.
    """
    before = {task.name for task in _TASKS.glob("*")}
    with ThreadPoolExecutor(1, initializer=_name_thread, initargs=(name, place)) as pool:
        pool.submit(function).result()
    return frozenset(task.name for task in _TASKS.glob("*")) - before


def when_tasks_ended(threads: frozenset[str], function: Callable[[], object]) -> None:
    """Call a function once tokio's worker, the first of its name among some threads, has no task to run, or after 2 s.

    A task that is dropped with its runtime drops Python objects without the interpreter, and pyo3 aborts the process.
    """
    deadline = time.monotonic() + _TASKS_SECONDS
    worker = min((thread for thread in threads if _has_name(_TASKS / thread, TOKIO_WORKER)), key=int, default="ended")
    looks = 0
    while looks < _LOOKS and time.monotonic() < deadline:
        time.sleep(0.002)
        looks = looks + 1 if _waits_for_events(_TASKS / worker) else 0
    function()


def wait_for_threads(name: str, timeout: float) -> None:
    """Wait until no thread has a name but those of the dispatcher, which may have inherited it, too."""
    deadline = time.monotonic() + timeout
    others = {str(each.native_id) for each in threading.enumerate() if each.name.startswith("plughost-")}
    while any(_has_name(task, name) for task in _TASKS.glob("*") if task.name not in others):
        if time.monotonic() > deadline:
            return
        time.sleep(0.002)


def _name_thread(name: str, place: Callable[[], object]) -> None:
    place()
    with contextlib.suppress(OSError):
        (_TASKS / str(threading.get_native_id()) / "comm").write_text(name)


def _has_name(task: Path, name: str) -> bool:
    try:
        return (task / "comm").read_text() == f"{name}\n"
    except OSError:  # it has just ended
        return False


def _waits_for_events(task: Path) -> bool:
    """Return whether a thread waits for events, and neither runs nor waits for the interpreter; or has ended."""
    try:
        return "poll" in (task / "wchan").read_text()
    except OSError:
        return True
