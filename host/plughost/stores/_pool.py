"""What operations wait for: a bounded pool of connections with a fair queue, and a gate while a schema changes."""

from __future__ import annotations

import threading
import time
from _thread import LockType, allocate_lock
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from plughost._waiting import about_to_wait
from plughost.stores._errors import Busy, MisusedStore, Refused, StoreError, Unavailable

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

_RETRY_DELAY: Final = 0.05
_POLL_INTERVAL: Final = 0.02
_SHORT_WAIT: Final = 0.05
_ASSUMED_ALIVE: Final = 0.001  # seconds, no longer than a statement takes to a server that ends meanwhile


class _Operation(threading.local):
    """The operation that this thread runs, if any: the store's label, and the seconds that it has waited.

    And how many operations that write this thread has completed so far, or may have, in all stores.
    """

    label: str | None = None
    waited = 0.0
    writes = 0


current_operation: Final = _Operation()


@dataclass(slots=True)
class WaitStatistics:
    """How often operations waited for something, and how many seconds altogether."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a wait of this thread's operation."""
        self.count += 1
        self.seconds += seconds
        current_operation.waited += seconds


class Waiter:
    """An operation that waits."""

    __slots__ = ("granted",)

    granted: LockType


class FairSemaphore:
    """Admits at most `limit` operations at once, and the others in the order of their arrival."""

    def __init__(self, limit: int, busy_message: str) -> None:
        """Begin unused. `busy_message` is for an operation that waited too long."""
        self.in_use: int = 0
        self.waits: WaitStatistics = WaitStatistics()
        self.queue: deque[Any] = deque()
        self.lock: LockType = allocate_lock()
        self._limit, self._busy_message = limit, busy_message

    def acquire(self, waiter: Waiter, deadline: float, *, over_limit: bool = False) -> None:
        """Return once it is the waiter's turn, or at once if it may go `over_limit`. `Busy` after the deadline."""
        with self.lock:
            if over_limit or (self.in_use < self._limit and not self.queue):
                self.in_use += 1
                return
            self._enqueue(waiter, self.queue.append)
        if not self._wait(waiter, deadline):
            raise Busy(self._busy_message)

    def release(self) -> None:
        """Free a slot, and admit the next waiter."""
        with self.lock:
            self.in_use -= 1
            if self.queue:
                self.grant_next()

    def requeue(self, waiter: Waiter) -> None:
        """Free the slot and wait at the head of the queue. Take the slot back if none is granted soon."""
        with self.lock:
            self.in_use -= 1
            self._enqueue(waiter, self.queue.appendleft)
        if not self._wait(waiter, time.monotonic() + _RETRY_DELAY):
            with self.lock:
                self.in_use += 1

    def admit_another(self) -> None:
        """Admit one more waiter, if there is room."""
        with self.lock:
            self.grant_next()

    def grant_next(self) -> None:
        """Admit one more waiter, if there is room. The caller holds the lock."""
        if self.queue and self.in_use < self._limit:
            self.in_use += 1
            self.queue.popleft().granted.release()

    def _enqueue(self, waiter: Waiter, enqueue: Callable[[Waiter], None]) -> None:
        waiter.granted = allocate_lock()
        waiter.granted.acquire()
        enqueue(waiter)

    def _wait(self, waiter: Waiter, deadline: float) -> bool:
        begun = time.monotonic()
        left = max(0.0, deadline - begun)
        granted = waiter.granted.acquire(timeout=min(left, _SHORT_WAIT))
        if not granted:
            about_to_wait(long=True)  # other requests of the plugin may need nothing that others hold
            granted = waiter.granted.acquire(timeout=max(0.0, left - _SHORT_WAIT))
        self.waits.add(time.monotonic() - begun)
        if not granted:
            with self.lock:
                if waiter in self.queue:
                    self.queue.remove(waiter)
                    return False
            waiter.granted.acquire()  # granted just now, or another thread runs this one's statement
        return True


class Pool(ABC):
    """At most `pool_size` connections, each used by one operation at a time. Further operations wait in a queue.

    A connection that was idle for `pool_idle` seconds is closed, unless it is the last.
    """

    def __init__(self, config: StoreConfig, label: str) -> None:
        """Open nothing yet."""
        self.label: str = label
        self.size: int = config.pool_size
        busy_message = (
            f"{label}: all {config.pool_size} connections were in use for too long "
            "(stores.pool_size says how many there may be)."
        )
        self.slots: FairSemaphore = FairSemaphore(self.size, busy_message)
        self._idle_limit = config.pool_idle
        self._idle: deque[tuple[Any, float]] = deque()  # each access is atomic, so it needs no lock
        self.closed: threading.Event = threading.Event()

    @abstractmethod
    def _connect(self, deadline: float) -> Any:
        """Return a new connection, for an operation that ends at the deadline."""

    @abstractmethod
    def _is_clean(self, connection: Any) -> bool:
        """Return whether a released connection can be used again."""

    def _is_alive(self, _connection: Any) -> bool:
        """Return whether an idle connection can still be used."""
        return True

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self.slots.in_use + len(self._idle)

    def acquire(self, deadline: float, *, is_probe: bool = False) -> Any:
        """Return a connection for the caller until `release`. A probe gets one more if all are in use.

        Raises:
            Busy: All were in use until the deadline.
        """
        waiter = Waiter()
        self.slots.acquire(waiter, deadline, over_limit=is_probe)
        while True:
            try:
                if not self._idle:
                    connection = self._connect(deadline)
                    self.slots.admit_another()  # others may wait only because the server refused one
                    return connection
                connection, since = self._idle.pop()
                if time.monotonic() - since < _ASSUMED_ALIVE or self._is_alive(connection):
                    return connection
                connection.close()
            except IndexError:  # another thread took it
                continue
            except Refused:  # the server takes no more at the moment; another operation may free one
                if time.monotonic() >= deadline:
                    self.slots.release()
                    raise
                self.slots.requeue(waiter)
            except BaseException:
                self.slots.release()
                raise

    def release(self, connection: Any) -> None:
        """Take a connection back, and close it if it can't be used again. Never raises."""
        now = time.monotonic()
        if self.slots.in_use <= self.size and self._is_clean(connection):
            self._idle.append((connection, now))
        else:
            connection.close()
        self.slots.release()
        if self.closed.is_set():
            self.disconnect()
        elif len(self._idle) > 1:
            self.shrink(now)

    def shrink(self, now: float, minimum: int = 1) -> None:
        """Close the connections that were idle for too long, except the last one."""
        with suppress(IndexError):  # another thread was quicker
            while len(self._idle) > minimum and now - self._idle[0][1] > self._idle_limit:
                self._idle.popleft()[0].close()

    def disconnect(self) -> None:
        """Close every idle connection."""
        self.shrink(inf, minimum=0)

    def close(self) -> bool:
        """Close every connection, those in use once they are released. Return whether all are closed."""
        self.closed.set()
        self.disconnect()
        return not self.slots.in_use


class Gate:
    """Admits operations while the store serves, one per thread. Entering and leaving takes no lock.

    Attributes:
        refusal: Why operations are refused. None while they are admitted. `MisusedStore` before the store is migrated,
            `Unavailable` once it is closed. In between, operations wait while it is `Busy`.
    """

    def __init__(self, label: str, patience: float) -> None:
        """Refuse operations at first. `drain` waits no longer than `patience` seconds."""
        self.refusal: StoreError | None = MisusedStore(
            f"The {label} is not open yet: stores open after the hooks that build the host. "
            "Use it in started, or when a request comes."
        )
        self._label, self._patience = label, patience
        self._running: dict[int, None] = {}

    @property
    def is_closed(self) -> bool:
        """Whether no operation will be admitted any more."""
        return isinstance(self.refusal, Unavailable)

    def enter(self, deadline: float) -> None:
        """Begin an operation of this thread once the gate is open. Raise the refusal, `Busy` after the deadline.

        Inside another operation, raise `MisusedStore`.
        """
        if current_operation.label is not None:
            raise MisusedStore(
                f"An operation of the {self._label} was begun inside one of the {current_operation.label}. Do one "
                "after the other: two at once in a thread can wait for each other for ever."
            )
        while True:
            current_operation.label = self._label
            current_operation.waited = 0.0
            self._running[threading.get_ident()] = None
            if self.refusal is None:  # a `drain` from here on sees this operation
                return
            self.end()
            if not isinstance(self.refusal, Busy) or time.monotonic() >= deadline:
                self.check()
            time.sleep(_POLL_INTERVAL)

    def check(self) -> None:
        """Raise the refusal, if there is one, as a new exception, since several threads may raise it."""
        refusal = self.refusal
        if refusal is not None:
            raise type(refusal)(str(refusal))

    def end(self) -> None:
        """End this thread's operation."""
        current_operation.label = None
        self._running.pop(threading.get_ident(), None)

    def drain(self) -> None:
        """Make operations wait, and wait for running ones. If one takes too long, admit others and raise `Busy`."""
        before, pause = self.refusal, Busy(f"The {self._label} is being migrated.")
        if not self.is_closed:
            self.refusal = pause
        deadline = time.monotonic() + self._patience
        while self._running:
            if time.monotonic() > deadline:
                if self.refusal is pause:
                    self.refusal = before
                raise Busy(f"Requests that use the {self._label} took longer than {self._patience:g} s: try again.")
            time.sleep(_POLL_INTERVAL)
