"""A steady load from many clients, with a kept connection each or a new one for each request."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import httpx
from tests.integration.kit import LANES

if TYPE_CHECKING:
    from tests.integration.kit import HostProcess, Lane

Ask = Callable[[httpx.Client], str]
"""One exchange of a client; returns a word for the tally, and raises where something is wrong."""


@dataclass
class Load:
    """Clients that send requests until they are stopped.

    Attributes:
        tally: How often each word came of an exchange.
        failures: What went wrong.
    """

    host: HostProcess
    pause: float = 0.002
    tally: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        """Return the load."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the load."""
        self.stop()

    def add(self, name: str, ask: Ask, lanes: tuple[Lane, ...] = LANES) -> None:
        """Start two clients for each lane: one keeps its connection, one closes it after each exchange."""
        for lane in lanes:
            for keep in (True, False):
                told = f"{name} over {lane}, {'kept' if keep else 'closing'}"
                thread = threading.Thread(target=self._run, args=(told, ask, lane, keep))
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Let every client finish its exchange and close its connections."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, ask: Ask, lane: Lane, keep: bool) -> None:
        for client in self._clients(lane, keep):
            try:
                word = ask(client)
            except (httpx.HTTPError, AssertionError) as error:
                with self._lock:
                    self.failures.append(f"{name}: {type(error).__name__}: {error}")
            else:
                with self._lock:
                    self.tally[word] += 1
            if self._stopped.wait(self.pause):
                return

    def _clients(self, lane: Lane, keep: bool) -> Iterator[httpx.Client]:
        """Yield a client for each exchange: always the same, or a new one each time."""
        trusted = self.host.tls
        with ExitStack() as stack:
            kept = stack.enter_context(self.host.client(lane, verify=trusted)) if keep else None
            while True:
                if kept is not None:
                    yield kept
                else:
                    with self.host.client(lane, verify=trusted) as client:
                        yield client
