"""The threads that answer requests, over all listeners of a host.

Of all threads that answer requests one is active, the others are parked; when a request has run for some milliseconds,
a parked thread becomes the active one, and the slow one parks when it is done. Plugins take turns, and none holds more
than its share of threads with slow requests: what else it is asked waits in a bounded queue of its own, and is refused
after that. Requests of plugins with stores are answered beside all that, by `Beside`.
"""

from __future__ import annotations

import logging
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from typing import Final

from plughost._servers.beside import MOST_RESTING, Beside
from plughost._servers.work import Backlog, Crew, Job, Lane, Spot
from plughost._waiting import this_thread

TICK_SECONDS: Final = 0.005  # how often it is looked whether a request runs for long: one that is seen twice does
_LONG_TICKS: Final = 10  # how often it is looked what waits, and what runs for long beside the turn
_CALM_TICKS: Final = 20  # without a request, after which nobody looks until one comes
_LEAST_SHARE: Final = 2
_TURN_SECONDS: Final = 0.002  # for which a thread of an engine answers before it receives again, though more wait
_MOST_BESIDE: Final = 10  # threads that answer one plugin's requests beside the active one: one for each connection
_NOTHING: Final = None, None, 0
_LOGGER: Final = logging.getLogger("plughost._servers")


class Dispatcher(Beside):
    """Hands requests to threads, one after the other for as long as none takes long.

    Args:
        threads: How many slow requests run at once at most; a plugin that holds no thread may always begin one more.
        share: How many of these one plugin may hold; by default a quarter, and at least two.
        queue: How many requests of one plugin may wait.
        patience: Seconds after which one that waited is refused instead of begun.
        one_processor: Whether its threads share one processor; see `Processor`.
    """

    def __init__(
        self,
        threads: int,
        *,
        share: int | None = None,
        queue: int = 64,
        patience: float = 10.0,
        one_processor: bool = False,
    ) -> None:
        super().__init__(share or max(_LEAST_SHARE, threads // 4), share or _MOST_BESIDE, queue, one_processor)
        self._threads = threads
        self._patience = patience
        self._backlog = Backlog()
        self._turn = allocate_lock()  # whoever is active holds it, and nobody else takes from the backlog
        self._crews = [self._own]
        self._active: Crew | None = None  # of the active thread; None while the turn passes on
        self._runs = 0  # how many jobs ran so far in the turn, the one that runs included
        # What runs in the turn, by its number, and where. The turn is for whoever takes it out to pass on.
        self._current: dict[int, tuple[Job, Crew, int]] = {}
        self._give_way = self.rest
        self._held = 0
        self._alarm = threading.Event()
        self._watcher: threading.Thread | None = None
        self._closed = False

    def crew(self, threads: int) -> Crew:
        """Take part in dispatching with the threads of an engine, which call `bring`."""
        with self._guard:
            self._crews.append(Crew(threads - 1))
            return self._crews[-1]

    def dismiss(self, crew: Crew) -> None:
        """Let the parked threads of an engine go, and park none of them any more."""
        with self._guard:
            crew.closed = True
            self._crews = [each for each in self._crews if each is not crew]
            parked, crew.parked = crew.parked, []
        for spot in parked:
            spot.lock.release()

    def close(self, timeout: float) -> bool:
        """End the dispatcher's own threads; return whether all have ended after so many seconds."""
        self._closed = True
        self._alarm.set()
        self.dismiss(self._own)
        with self._guard:
            idle, self._idle = self._idle, []
        for spot in idle:
            spot.lock.release()
        deadline = time.monotonic() + timeout
        threads = [each for each in (*self._started, self._watcher) if each and each.is_alive()]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def is_awaited(self, lane: Lane) -> bool:
        """Return whether others wait for the turn, or for the threads of a plugin."""
        return bool(self._backlog or lane.waiting or lane.waiting_beside)

    def put_back(self, job: Job, crew: Crew) -> None:
        """Have a job done after what waits already; `bring` is to follow."""
        job.crew = crew
        self._backlog.add(job)

    def leave(self, job: Job) -> None:
        """Have a job done by a thread of the dispatcher's own."""
        self._backlog.add(job)
        if self._turn.acquire(False):
            with self._guard:
                self._hand_on(self._own)

    def bring(self, job: Job, crew: Crew) -> None:
        """Do a job in this thread of an engine where nobody is active, else leave it to who is.

        Return when this thread is to receive the next request.
        """
        job_here: Job | None = job
        if not self._turn.acquire(False):
            job.crew = crew
            self._backlog.add(job)
            job_here = None
            if not self._turn.acquire(False):
                self._guard.acquire()
                if self._active is not crew or self._others_wait(crew):
                    self._guard.release()
                elif self._park(crew):
                    self._work(None, crew)
                return
        if crew.held < crew.most:
            self._active = crew
            self._work(job_here, crew)
            return
        if job_here is not None:
            self._backlog.add(job_here)
        with self._guard:
            self._hand_on(self._own)

    def _others_wait(self, crew: Crew) -> bool:
        """Return whether what is done next came to another engine, which goes on receiving meanwhile."""
        job = self._backlog.first()
        return job is not None and job.crew is not crew

    def stand_by(self, crew: Crew) -> bool:
        """Park this thread of an engine, whose threads are all there, where another receives; return whether it did."""
        self._guard.acquire()
        if crew.closed or len(crew.parked) + crew.held + (self._active is crew) >= crew.most:
            self._guard.release()
            return False
        if self._park(crew):
            self._work(None, crew)
        return True

    # With the turn.

    def rest(self, long: bool) -> None:
        """Let others go on while this thread waits, for long or where some wait now; without the turn do nothing."""
        if long or self._backlog:
            with self._guard:
                number = self._runs
                job, crew, thread = self._current.get(number, _NOTHING)
                if job and crew and thread == this_thread.native_id and job.lane.resting < MOST_RESTING:
                    del self._current[number]
                    this_thread.waits = True
                    job.lane.resting += 1
                    if long:
                        self._let_go(job)
                    self._let_in(job.lane)  # it may have waited for a thread, and holds none now
                    self._pass_on(crew)

    def _work(self, job: Job | None, crew: Crew) -> None:
        """Do what there is to do; return once it is another's turn, or nothing is left."""
        me, current = self._take_part(self._give_way), self._current
        until = time.monotonic() + _TURN_SECONDS
        while job is not None or (job := self._next(crew)) is not None:
            waited = job.since
            do = self._admit(job) if self._held or waited else job.run
            if do is None:
                job = None
                continue
            lane = job.lane
            self._runs = number = self._runs + 1
            current[number] = job, crew, me
            if self._asleep:
                self._wake_watcher()
            try:
                do()
            except BaseException:
                _LOGGER.exception("a request was not answered")
            job = do = None
            if current.pop(number, None) is None:  # the turn was passed on meanwhile
                with self._guard:
                    self.processor.join()  # it may have left the processor
                    if self._give_back(lane, crew):
                        continue
                return
            if waited:  # a slow one that ended let it in, and it has ended as well
                with self._guard:
                    self._let_in(lane)
            if crew is not self._own and time.monotonic() > until and self._backlog:
                with self._guard:
                    self._hand_on(self._own)
                return

    def _next(self, crew: Crew) -> Job | None:
        """Return what is done next; None where nothing is left, and the turn is let go of."""
        while (job := self._backlog.take()) is None:
            self._active = None
            self._turn.release()
            if not self._backlog or not self._turn.acquire(False):
                return None
            self._active = crew
        return job

    def _admit(self, job: Job) -> Callable[[], None] | None:
        """Return what is done of a job, which may be to refuse it; None where it waits in its lane now."""
        lane = job.lane
        with self._guard:
            if job.since and not job.begun and time.monotonic() - job.since > self._patience:
                lane.refused += 1
                return job.refuse
            if self._has_room(lane):
                job.since = 0.0
                return job.run
            if job.since:  # it was there before those that wait
                lane.waiting.appendleft(job)
                self._let_in(lane)  # the thread that it was to have is another's
                return None
            if not job.begun and sum(not each.begun for each in lane.waiting) >= self._queue:
                lane.refused += 1
                return job.refuse
            lane.waiting.append(job)
            job.since = time.monotonic()
            return None

    # With the guard.

    def _has_room(self, lane: Lane) -> bool:
        """Return whether a plugin may begin one more request."""
        return lane.held == 0 or (lane.held < lane.share and self._held < self._threads)

    def _let_in(self, lane: Lane) -> None:
        """Let in one of those that wait, of this plugin if there is one that may begin."""
        for each in (lane, *self.lanes.values()):
            if each.waiting and self._has_room(each):
                self._backlog.add(each.waiting.popleft())
                return

    def _give_back(self, lane: Lane, crew: Crew) -> bool:
        """Come to the end of a slow request; return whether it is this thread's turn again."""
        crew.held -= 1
        if this_thread.waits:
            this_thread.waits = False
            lane.resting -= 1
        else:
            lane.held -= 1
            self._held -= 1
        self._let_in(lane)
        has_turn = self._turn.acquire(False)
        if has_turn:
            self._active = crew
        return has_turn

    def _park(self, crew: Crew) -> bool:
        """Let go of the guard, and wait; return whether it is this thread's turn."""
        if crew.closed:
            self._guard.release()
            return False
        spot = Spot()
        crew.parked.append(spot)
        self._guard.release()
        spot.lock.acquire()
        return spot.has_turn

    def _hand_on(self, crew: Crew) -> None:
        """Pass the turn to a parked thread, of this crew if there is one, else to a new one."""
        for each in (crew, *self._crews):
            if each.parked and each.held < each.most:
                spot = each.parked.pop()
                self._active = each
                spot.has_turn = True
                spot.lock.release()
                return
        self._active = self._own
        try:
            self._start(self._serve)
        except RuntimeError:  # the system allows no more: the watcher tries again
            self._active = None
            self._turn.release()
            self._alarm.set()

    def _take_over(self, number: int) -> None:
        """Take the turn from a request that runs for long, if it still does, and pass it on."""
        job, crew, thread = self._current.pop(number, _NOTHING)
        if job and crew:
            job.lane.held += 1
            self._held += 1
            self._let_go(job, thread)
            self._pass_on(crew)

    def _pass_on(self, crew: Crew) -> None:
        """Pass the turn on from what runs, which goes on without it."""
        crew.held += 1
        self._active = None
        if crew.parked and crew.held >= crew.most:
            crew.parked.pop().lock.release()  # to receive what comes next
        if crew.parked or self._backlog:
            self._hand_on(crew)
        else:
            self._turn.release()
            if self._backlog and self._turn.acquire(False):
                self._hand_on(crew)

    # In threads of its own.

    def _serve(self) -> None:
        """Begin with the turn, and park when there is nothing to do."""
        while True:
            self._work(None, self._own)
            self._guard.acquire()
            if not self._park(self._own):
                return

    def _wake_watcher(self) -> None:
        with self._guard:
            self._asleep = False
            self._alarm.set()
            if self._watcher is None:
                watcher = threading.Thread(target=self._watch, name="plughost-watch", daemon=True)
                try:
                    watcher.start()
                    self._watcher = watcher
                except RuntimeError:  # the system allows no more: the next request tries again
                    self._asleep = True

    def _watch(self) -> None:
        """Look every few milliseconds what runs and what waits, for as long as something does."""
        self.processor.join()
        seen = calm = ticks = 0
        some_wait = False
        running: Mapping[int, Job | None] = {}
        while not self._closed:
            time.sleep(TICK_SECONDS)
            if seen in self._current:
                with self._guard:
                    self._take_over(seen)
            seen = self._runs
            while self._long:
                self._long.popleft().takes_long()
            ticks += 1
            if not ticks % _LONG_TICKS:
                with self._guard:
                    running = self._let_go_slow(running)
                some_wait = self._end_waiting()
            calm = 0 if self._current or some_wait or self._held or self._running else calm + 1
            if calm > _CALM_TICKS:
                self._alarm.clear()
                self._asleep = True
                if not (self._current or self._running or self._end_waiting() or self._long or self._closed):
                    self._alarm.wait()
                calm = 0

    def _end_waiting(self) -> bool:
        """Have those refused that have waited for too long; return whether any still waits."""
        late = time.monotonic() - self._patience
        with self._guard:
            lanes = tuple(self.lanes.values())  # another thread may add one
            queues = [queue for lane in lanes for queue in (lane.waiting, lane.waiting_beside) if queue]
            for queue in queues:
                for job in [each for each in queue if each.since < late and not each.begun]:
                    queue.remove(job)
                    self._backlog.add(job)
            if self._backlog and self._turn.acquire(False):
                self._hand_on(self._own)
        return bool(queues)
