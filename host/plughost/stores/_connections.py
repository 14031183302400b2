"""The queues for a store's connections, a bounded pool of these, and how long operations wait."""

from __future__ import annotations

import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from plughost._waiting import about_to_wait
from plughost.stores._errors import Busy, Refused

_LOOK_AGAIN: Final = 0.05
_SOON: Final = 0.05
_SURELY_ALIVE: Final = 0.001  # seconds: no longer than a statement is on its way to a server that ends meanwhile


class _Operation(threading.local):
    """The operation that this thread runs, if any: the store's label, and the seconds that it has waited."""

    label: str | None = None
    waited = 0.0


operation: Final = _Operation()


@dataclass(slots=True)
class Waits:
    """How often, and how many seconds all together, operations waited for something."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a wait of this thread's operation."""
        self.count += 1
        self.seconds += seconds
        operation.waited += seconds


class Turn:
    """A wait of one operation."""

    __slots__ = ("passed",)

    passed: LockType


class Turns:
    """Lets so many operations use something at once; others wait, and come in the order of their arrival."""

    def __init__(self, most: int, busy: str) -> None:
        """Begin with nobody; `busy` is what those are told who wait for too long."""
        self.used: int = 0
        self.waits: Waits = Waits()
        self.queue: deque[Any] = deque()
        self.lock: LockType = allocate_lock()
        self._most, self._busy = most, busy

    def begin(self, turn: Turn, deadline: float, *, beyond: bool = False) -> None:
        """Return once it is this one's turn, or at once to be one `beyond` the most; `Busy` after the deadline."""
        with self.lock:
            if beyond or (self.used < self._most and not self.queue):
                self.used += 1
                return
            self._line_up(turn, self.queue.append)
        if not self._wait(turn, deadline):
            raise Busy(self._busy)

    def end(self) -> None:
        """Let the next one in."""
        with self.lock:
            self.used -= 1
            if self.queue:
                self._let_in()

    def look_again(self, turn: Turn) -> None:
        """Leave one's turn to who can make use of it, and be the next, or try again in a moment."""
        with self.lock:
            self.used -= 1
            self._line_up(turn, self.queue.appendleft)
        if not self._wait(turn, time.monotonic() + _LOOK_AGAIN):
            with self.lock:
                self.used += 1

    def let_in(self) -> None:
        """Let one more in, if there is room."""
        with self.lock:
            self._let_in()

    def _let_in(self) -> None:
        if self.queue and self.used < self._most:
            self.used += 1
            self.queue.popleft().passed.release()

    def _line_up(self, turn: Turn, where: Callable[[Turn], None]) -> None:
        turn.passed = allocate_lock()
        turn.passed.acquire()
        where(turn)

    def _wait(self, turn: Turn, deadline: float) -> bool:
        begun = time.monotonic()
        left = max(0.0, deadline - begun)
        passed = turn.passed.acquire(timeout=min(left, _SOON))
        if not passed:
            about_to_wait(long=True)  # what else the plugin is asked may need nothing that others hold
            passed = turn.passed.acquire(timeout=max(0.0, left - _SOON))
        self.waits.add(time.monotonic() - begun)
        if not passed:
            with self.lock:
                if turn in self.queue:
                    self.queue.remove(turn)
                    return False
            turn.passed.acquire()  # it came at this very moment, or somebody does what this one came for
        return True


class Pool:
    """At most `size` connections, each used by one operation at a time; who finds all in use waits in a queue.

    A connection that nobody needed for `idle` seconds is closed, unless it is the last.
    """

    def __init__(
        self,
        open_one: Callable[[float], Any],
        clean: Callable[[Any], bool],
        *,
        alive: Callable[[Any], bool] | None = None,
        label: str,
        size: int,
        idle: float,
    ) -> None:
        """Open nothing yet; `open_one` is given the deadline of who waits for it.

        `clean` tells whether a connection that is given back can be used again, `alive` whether one that was idle can.
        """
        self.size = size
        busy = (
            f"{label}: all {size} connections were in use for too long (stores.pool_size says how many there may be)."
        )
        self.turns: Turns = Turns(size, busy)
        self._open_one, self._clean, self._alive, self._keep_idle = open_one, clean, alive, idle
        self._idle: deque[tuple[Any, float]] = deque()  # each step on it is one of the interpreter's: it needs no lock
        self._closed = False

    @property
    def open(self) -> int:
        """How many there are."""
        return self.turns.used + len(self._idle)

    def take(self, deadline: float, *, beyond: bool = False) -> Any:
        """Return a connection that is the caller's until `give`, one `beyond` the size where all are in use.

        Raises:
            Busy: All were in use until the deadline.
        """
        turn = Turn()
        self.turns.begin(turn, deadline, beyond=beyond)
        while True:
            try:
                if not self._idle:
                    connection = self._open_one(deadline)
                    self.turns.let_in()  # who waits may do so for want of a connection
                    return connection
                connection, since = self._idle.pop()
                if self._alive is None or time.monotonic() - since < _SURELY_ALIVE or self._alive(connection):
                    return connection
                connection.close()
            except IndexError:  # another was quicker
                continue
            except Refused:  # the server has no place for one more: it or another operation may have one soon
                if time.monotonic() >= deadline:
                    self.turns.end()
                    raise
                self.turns.look_again(turn)
            except BaseException:
                self.turns.end()
                raise

    def give(self, connection: Any) -> None:
        """Take a connection back; one that is not fit any more is closed. Never raises."""
        now = time.monotonic()
        if self.turns.used <= self.size and self._clean(connection):
            self._idle.append((connection, now))
        else:
            connection.close()
        self.turns.end()
        if self._closed:
            self.close()
        elif len(self._idle) > 1:
            self.shrink(now)

    def shrink(self, now: float, least: int = 1) -> None:
        """Close the connections that nobody needed for a while, but for the last one."""
        with suppress(IndexError):  # another thread was quicker
            while len(self._idle) > least and now - self._idle[0][1] > self._keep_idle:
                self._idle.popleft()[0].close()

    def disconnect(self) -> None:
        """Close every idle connection."""
        self.shrink(inf, least=0)

    def close(self) -> None:
        """Close every connection, those in use when they are given back."""
        self._closed = True
        self.disconnect()
