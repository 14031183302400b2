"""The threads that answer requests: those of the engines, and further ones that are started as needed.

A thread that has nothing to do parks. It is woken with something to do, or to receive the next request for its engine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import LockType, allocate_lock
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from sys import maxsize
from typing import TYPE_CHECKING, Final

from plughost._waiting import this_thread

if TYPE_CHECKING:
    from plughost._servers.processor import Processor

Work = Callable[["ThreadGroup"], None]
"""What a thread does when it is woken. It gets the thread's group."""

STACK_BYTES: Final = 8 * 1024 * 1024
"""The stack of a thread: from Python 3.13 on, recursive C code relies on this size."""
MORE_THREADS: Final = "raise TasksMax of the unit, `ulimit -u`, or the container's limit of processes (pids.max)"


def set_stack_size() -> None:
    """Give the threads that Python starts from now on `STACK_BYTES`: on musl, or after `ulimit -s`, it is less."""
    if sys.platform == "linux" and not threading.stack_size():
        threading.stack_size(STACK_BYTES)


def require_threads(number: int) -> None:
    """Check that the system allows so many further threads now, by starting and ending them.

    Raises:
        RuntimeError: It does not.
    """
    release = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(number):
            thread = threading.Thread(target=release.wait, name="plughost-spare", daemon=True)
            thread.start()
            started.append(thread)
    finally:
        release.set()
        for thread in started:
            thread.join()
        _wait_until_gone(f"/proc/self/task/{thread.native_id}" for thread in started)


def _wait_until_gone(tasks: Iterable[str]) -> None:
    """Wait until the system counts ended threads no more, or for 1 s."""
    deadline = time.monotonic() + 1.0
    for task in tasks:
        while os.path.exists(task) and time.monotonic() < deadline:  # noqa: PTH110 - Path's raises
            time.sleep(0.0005)


class ParkedThread:
    """A thread that waits on a lock until it is woken."""

    def __init__(self) -> None:
        self._lock: LockType = allocate_lock()
        self._lock.acquire()
        self._work: Work | None = None

    def wake(self, work: Work | None = None) -> None:
        """Have it do something. By default, return to where it parked."""
        self._work = work
        self._lock.release()

    def wait(self, group: ThreadGroup) -> bool:
        """Wait in this thread, a member of the group, and do what it is woken for. Return whether that was anything."""
        self._lock.acquire()
        work, self._work = self._work, None
        if work is None:
            return False
        work(group)
        return True


@dataclass(slots=True, eq=False)
class ThreadGroup:
    """The threads of one engine, or the further ones. `Threads.lock` guards it.

    An engine's threads receive requests, too: they park only while one of them is active or ready to receive the next
    request. The last one that isn't held runs no jobs itself.
    """

    max_held: int  # threads that slow requests may hold
    held: int = 0
    parked: list[ParkedThread] = field(default_factory=list)
    is_closed: bool = False

    def park(self) -> ParkedThread:
        """Add this thread to the parked ones. It calls `wait` once it has released the lock."""
        thread = ParkedThread()
        if self.is_closed:
            thread.wake()
        else:
            self.parked.append(thread)
        return thread


class Threads:
    """The threads of a host, and the lock for what they share.

    Attributes:
        lock: Guards the groups, and what is counted in each `Share`.
        own: The group of the threads that belong to no engine.
        started: These threads.
        processor: The processor that all threads share, if they do.
    """

    def __init__(self, processor: Processor) -> None:
        self.lock: LockType = allocate_lock()
        self.own: ThreadGroup = ThreadGroup(maxsize)
        self.started: list[threading.Thread] = []
        self.processor: Processor = processor

    def close_group(self, group: ThreadGroup) -> None:
        """Wake the parked threads of a group, and park none of them again."""
        with self.lock:
            group.is_closed = True
            while group.parked:
                group.parked.pop().wake()

    def close(self, deadline: float) -> bool:
        """End the started threads. Return whether all have ended by the deadline."""
        self.close_group(self.own)
        for thread in self.started:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self.started)

    def register(self, yield_turn: Callable[[bool], None]) -> int:
        """Prepare this thread to run jobs, and set how it yields. Return its native id."""
        this = this_thread
        if this.yield_turn is not yield_turn:
            if this.yield_turn is None:
                self.processor.bind()
            this.yield_turn = yield_turn
        return this.native_id

    # The caller holds the lock.

    def run(self, work: Work, group: ThreadGroup) -> bool:
        """Have a parked thread of this group do something. If the own group has none, start one.

        A parked thread of an engine may run jobs: while slow requests hold all of its threads but one, none is parked.
        Return False if the system allows no further thread.
        """
        if group.parked:
            group.parked.pop().wake(work)
            return True
        first = ParkedThread()
        first.wake(work)
        thread = threading.Thread(target=self._serve, args=(first,), name="plughost-requests", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self.started.append(thread)
        return True

    def _serve(self, parked: ParkedThread) -> None:
        """Do what there is to do, and park, until the group is closed."""
        while parked.wait(self.own):
            with self.lock:
                parked = self.own.park()
