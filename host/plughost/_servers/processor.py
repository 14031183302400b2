"""One processor for the threads that answer requests.

Only one thread of a process runs Python at a time. If they took turns on several processors, each turn would wake
another processor and begin with a cold cache, which takes longer than most requests. So these threads share one
processor. A slow request leaves it, and so do jobs: code that computes for long without the GIL must not delay the
others. An engine's native threads avoid it, because there they would interrupt the thread that runs Python.

Device interrupts delay it, too, and so do processes that wait for devices: a database on this machine wakes where its
disk interrupts. A create took twice as long there. So the processor is one of the half with the fewest interrupts.

The main thread is never bound, so its mask tells which processors are allowed. On other systems than Linux, nothing is
done, here or for the threads that native code starts, which are found by the name that they inherit.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from plughost._servers.connections import OUT_OF_FILES

_TASKS: Final = Path("/proc/self/task")
_TASKS_TIMEOUT: Final = 2.0
_IDLE_CHECKS: Final = 5  # in a row: a worker waits, too, while a thread that has work for it waits for the GIL
TOKIO_WORKER: Final = "tokio-rt-worker"


class Processor:
    """The processor that some threads share, if any. Chosen at random: several hosts would choose the same."""

    def __init__(self, *, shared: bool) -> None:
        self._number: int | None = None
        if shared and sys.platform == "linux":
            interrupts = ""
            with contextlib.suppress(OSError):
                interrupts = Path("/proc/interrupts").read_text(encoding="ascii", errors="replace")
            self._number = random.choice(least_interrupted(os.sched_getaffinity(os.getpid()), interrupts))  # noqa: S311 - no secret  # nosec B311

    def bind(self) -> None:
        """Bind this thread to the shared processor."""
        self._set_affinity(lambda allowed, number: {number})

    def unbind(self, thread: int = 0) -> None:
        """Let a thread run on every processor of the process: this one, or that of a native id."""
        self._set_affinity(lambda allowed, number: allowed, thread)

    def avoid(self) -> None:
        """Keep this thread, and those it starts, off the shared processor, if there is another."""
        self._set_affinity(lambda allowed, number: allowed - {number} or allowed)

    @contextmanager
    def unbound(self) -> Iterator[None]:
        """Let this thread, and those it starts, run on every processor during a block."""
        self.unbind()
        try:
            yield
        finally:
            self.bind()

    def _set_affinity(self, choose: Callable[[set[int], int], set[int]], thread: int = 0) -> None:
        if self._number is not None and sys.platform == "linux":
            with contextlib.suppress(OSError):
                allowed = os.sched_getaffinity(os.getpid())
                number = self._number if self._number in allowed else min(allowed)
                os.sched_setaffinity(thread, choose(allowed, number))


def least_interrupted(allowed: Collection[int], interrupts: str) -> list[int]:
    """Return the half of the allowed processors with the fewest device interrupts, according to `/proc/interrupts`.

    Return all of them if `interrupts` is empty.
    """
    counts = dict.fromkeys(sorted(allowed), 0)
    heading, *lines = interrupts.splitlines() or [""]
    numbers = [int(name.removeprefix("CPU")) for name in heading.split()]
    for kind, *fields in map(str.split, lines):
        if kind[:-1].isdigit():  # the others are not from devices, such as the timer's
            for processor, count in zip(numbers, fields, strict=False):
                if processor in counts:
                    counts[processor] += int(count)
    return sorted(counts, key=counts.__getitem__)[: (len(counts) + 1) // 2] if interrupts else list(counts)


def call_in_named_thread(name: str, function: Callable[[], object], bind: Callable[[], object]) -> frozenset[str]:
    """Call a function in a thread of that name (at most 15 characters). Return the ids of the threads that it started.

    They inherit the processors that `bind` chooses for the thread.
    """
    before = {task.name for task in _TASKS.glob("*")}

    def call() -> None:
        bind()
        with contextlib.suppress(OSError):
            (_TASKS / str(threading.get_native_id()) / "comm").write_text(name)
        function()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result()
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
    """Wait until no thread has this name, except threads of the dispatcher, which may have inherited it.

    Without a descriptor to look at them, wait for all of the time.
    """
    deadline = time.monotonic() + timeout
    ignored = {str(each.native_id) for each in threading.enumerate() if each.name.startswith("plughost-")}
    while _is_any_named(name, ignored) and time.monotonic() < deadline:
        time.sleep(0.002)


def _is_any_named(name: str, ignored: Collection[str]) -> bool:
    try:
        return any(_has_name(task, name) for task in _TASKS.iterdir() if task.name not in ignored)
    except OSError as error:  # other than Linux, or there may be one
        return error.errno in OUT_OF_FILES


def _has_name(task: Path, name: str) -> bool:
    try:
        return (task / "comm").read_text() == f"{name}\n"
    except OSError as error:  # the thread has just ended, or it may have the name
        return error.errno in OUT_OF_FILES


def _is_waiting_for_events(task: Path) -> bool:
    """Return whether a thread has ended or waits for events: it neither runs nor waits for the GIL."""
    try:
        return "poll" in (task / "wchan").read_text()
    except OSError as error:
        return error.errno not in OUT_OF_FILES
