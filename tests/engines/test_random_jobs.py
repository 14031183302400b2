"""Random jobs of several plugins, received by several engines: races that no other test thinks of."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from tests.engines.dispatching import Receivers

from plughost._servers.dispatcher import Dispatcher
from plughost._servers.work import Job
from plughost._waiting import about_to_wait

if TYPE_CHECKING:
    from tests.engines.conftest import WaitUntil

JOBS: Final = 300
POOL: Final = 10
NEVER: Final = threading.Event()
STEPS: Final = (
    ("work", 0.0),
    ("work", 0.0),
    ("work", 0.002),
    ("work", 0.02),
    ("wait briefly", 0.004),
    ("wait", 0.02),
    ("go on later", 0.0),
    ("fail", 0.0),
)


class Running:
    """How many jobs of each plugin run."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def change(self, plugin: str, number: int) -> int:
        """Add a number, and return the sum."""
        with self._lock:
            self._counts[plugin] += number
            return self._counts[plugin]


class RandomJob(Job):
    """A job of random steps, which records how it ended, and how many of its plugin ran at once."""

    def __init__(self, dispatcher: Dispatcher, plugin: str, steps: list[tuple[str, float]], running: Running) -> None:
        """Take the steps, and the counts that it shares with the other jobs."""
        self.share = dispatcher.share_of(plugin)
        self.endings: list[str] = []
        self.at_once = 0
        self._dispatcher = dispatcher
        self._steps = steps
        self._running = running

    def run(self) -> None:
        """Take the steps that are left."""
        plugin = self.share.plugin
        self.at_once = max(self.at_once, self._running.change(plugin, 1))
        try:
            while self._steps:
                what, seconds = self._steps.pop(0)
                if what == "fail":
                    self.endings.append("failed")
                    raise ValueError(what)
                if what == "go on later":
                    self.has_begun = True
                    self._dispatcher.submit(self)
                    return
                if what != "work":
                    about_to_wait(long=what == "wait")
                NEVER.wait(seconds)
            self.endings.append("done")
        finally:
            self._running.change(plugin, -1)

    def refuse(self) -> None:
        """Record the refusal."""
        self.endings.append("refused too late" if self.has_begun else "refused")


@pytest.mark.parametrize("seed", range(6))
def test_each_job_ends_once_and_leaves_nothing_held(wait_until: WaitUntil, seed: int) -> None:
    """Whatever jobs do, each ends or is refused once, none runs beyond its plugin's limit, and all threads are free."""
    chance = random.Random(seed)
    share = chance.choice([None, 1, 3])
    dispatcher = Dispatcher(
        chance.choice([2, 8]),
        share=share,
        queue_limit=chance.choice([0, 3, 64]),
        queue_timeout=chance.choice([0.1, 5.0]),
    )
    dispatcher.pool.plugins = {"plain": (), "stored": (), "read": ("POST",)}
    plugins = (*dispatcher.pool.plugins, "other", "")
    engines = [Receivers(dispatcher, chance.choice([2, 4, 12]), alone=alone) for alone in (False, True)]
    running = Running()
    jobs = []
    for _ in range(JOBS):
        plugin = chance.choice(plugins)
        steps = STEPS[:4] if plugin == "plain" else STEPS
        job = RandomJob(dispatcher, plugin, chance.choices(steps, k=chance.choice([1, 1, 2, 4])), running)
        jobs.append(job)
        chance.choice(engines).send(job)
        NEVER.wait(chance.choice([0.0, 0.0, 0.001]))
    wait_until(lambda: all(job.endings for job in jobs))
    wait_until(lambda: not any(load.held or load.queued for load in dispatcher.loads().values()))
    wait_until(lambda: not any(each.yielded for each in dispatcher.shares.values()))
    wait_until(lambda: not any(engine.group.held for engine in engines))
    assert {len(job.endings) for job in jobs} == {1}
    assert {job.endings[0] for job in jobs} <= {"done", "failed", "refused"}
    assert max(job.at_once for job in jobs if job.share.plugin == "plain") <= (share or POOL)
    for plugin in plugins:
        for engine in engines:
            job = RandomJob(dispatcher, plugin, [], running)
            engine.send(job)
            wait_until(partial(job.endings.__contains__, "done"))
    for engine in engines:
        engine.close()
    assert dispatcher.close(5)
