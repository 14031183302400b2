"""Jobs for the threads that answer requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from plughost._servers.work import Job

if TYPE_CHECKING:
    from tests.engines.conftest import Until

    from plughost._servers.dispatcher import Dispatcher

THREADS, SHARE, QUEUE = 8, 2, 3


class Task(Job):
    """A job that calls a function."""

    def __init__(self, dispatcher: Dispatcher, run: Callable[[], object], plugin: str = "") -> None:
        """Begin with nothing done."""
        self.lane = dispatcher.lane(plugin)
        self.begun = False
        self.since = 0.0
        self._run = run
        self.refused = threading.Event()

    def run(self) -> None:
        """Do what it was told."""
        self._run()

    def refuse(self) -> None:
        """Note that it was refused."""
        self.refused.set()


def leave(dispatcher: Dispatcher, run: Callable[[], object], plugin: str = "") -> Task:
    """Have a function called by the dispatcher's own threads."""
    task = Task(dispatcher, run, plugin)
    dispatcher.leave(task)
    return task


def hold(dispatcher: Dispatcher, release: threading.Event, until: Until, plugin: str, jobs: int) -> None:
    """Have a plugin hold threads."""
    for _ in range(jobs):
        leave(dispatcher, lambda: release.wait(20), plugin)
    until(lambda: dispatcher.loads()[plugin].held == jobs)
